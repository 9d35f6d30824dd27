"""Commands of docs/engines.md on a real Flink; the cluster's address is the only thing put in."""

import os
import pathlib
import re
import subprocess
import sys

import pytest

from tests.pages import blocks
from tests.pipelines.conftest import digests

pytestmark = pytest.mark.engines


def test_the_page_on_engines_runs_from_top_to_bottom_and_every_engine_gives_the_same(cluster, tmp_path):
    path = f"{pathlib.Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    shells = [one for one in blocks("docs/engines.md") if one.language == "sh"]
    for text in (one.text for one in shells if not re.search("Google|Dataflow|Kubernetes", one.title)):
        command = ["bash", "-euo", "pipefail", "-c", text.replace("localhost:8081", cluster.address)]
        done = subprocess.run(
            command, cwd=tmp_path, env={**os.environ, "PATH": path}, capture_output=True, text=True
        )
        assert done.returncode == 0, f"{text}\n{done.stderr}"
    roots = ["two", "flink", "cluster"]
    two, *others = (digests(tmp_path / root) for root in roots)
    assert len(two) > 10
    assert all(other == two for other in others)
