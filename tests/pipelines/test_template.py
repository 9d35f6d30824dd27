"""The flex template's own parameters; launching it is tested with the other engines."""

import re
import subprocess
import sys

from logloom.pipelines.template import parser
from tests.conftest import REPOSITORY


def test_flags_that_only_begin_as_the_template_s_own_are_beam_s():
    own, beams = parser().parse_known_args(["--recipe=a", "--to=b", "--ver=x", "--storage=y"])
    assert (own.recipe, own.to, own.verify) == ("a", "b", "new")
    assert beams == ["--ver=x", "--storage=y"]


def test_the_file_that_the_image_names_runs_as_a_script():
    image = (REPOSITORY / "logloom/runners/dataflow/Dockerfile").read_text()
    (file,) = re.findall(r"^ENV FLEX_TEMPLATE_PYTHON_PY_FILE=/opt/logloom/(\S+)$", image, re.MULTILINE)
    done = subprocess.run([sys.executable, REPOSITORY / file, "--help"], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert "--recipe" in done.stdout
