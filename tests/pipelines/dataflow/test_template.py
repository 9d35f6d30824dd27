"""The flex template's own parameters; launching it is tested with the other engines."""

import inspect
import json
import re
import subprocess
import sys

from typer.main import get_command

from logloom.cli import commands
from logloom.cli.options.jobs import EngineOptions
from logloom.io.catalog.manifest import read_manifest
from logloom.io.logs import listings
from logloom.io.storage.store import Store
from logloom.pipelines.dataflow.template import main, parser
from logloom.pipelines.plan import logs
from tests.conftest import REPOSITORY
from tests.transforms.ros2_logs import SECOND, SPEED, speeds, write_log

RECIPE = """
name: t
logs: [logs/*.mcap]
clock: {rate: 10}
columns:
  speed: {topic: /can, field: speed}
outputs: {table: {}}
vanished: drop
"""


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


def test_the_template_takes_all_that_build_takes_but_for_what_is_this_machine_s():
    here = {
        "workers",
        "view",
        "wait",
        "openlineage",
        "profile",
        "quiet",
        "json",
        *inspect.signature(EngineOptions).parameters,
    }
    named = {"sources": "recipe", "storage_option": "storage_options"}
    build = (
        {parameter.name for parameter in get_command(commands()).commands["build"].params} - here - {"help"}
    )
    own = {action.dest for action in parser()._actions} - {"help"}
    assert own == {named.get(name, name) for name in build}
    described = json.loads((REPOSITORY / "logloom/runners/dataflow/template.json").read_text())["parameters"]
    assert {parameter["name"] for parameter in described} == own
    assert {parameter["name"] for parameter in described if not parameter.get("isOptional")} == {
        action.dest for action in parser()._actions if action.required
    }


def test_the_job_of_the_template_leaves_out_logs_that_are_gone_and_opens_no_others_again(
    tmp_path, monkeypatch
):
    monkeypatch.setattr(listings, "SETTLED_NS", -3600 * SECOND)
    (tmp_path / "logs").mkdir()
    for name in "abc":
        write_log(tmp_path / f"logs/{name}.mcap", {"/can": (SPEED, speeds(count=12))})
    (tmp_path / "recipe.yaml").write_text(RECIPE)
    flags = [f"--recipe={tmp_path}/recipe.yaml", f"--to={tmp_path}/root", "--runner=FnApiRunner"]
    opened = []
    real = logs.open_log
    monkeypatch.setattr(logs, "open_log", lambda uris, *args: opened.append(uris) or real(uris, *args))
    main(flags)
    assert len(opened) == 3
    (tmp_path / "logs/b.mcap").unlink()
    main(flags)
    assert len(opened) == 4  # one, for the recipe
    manifest = read_manifest(Store.at(str(tmp_path / "root"), {}))
    assert manifest.version == 2
    assert [record.log_id for record in manifest.logs] == ["a", "c"]
