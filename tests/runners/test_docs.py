"""docs/engines.md, run as it stands; the cluster's address is the only thing put in."""

import os
import pathlib
import subprocess
import sys

import pytest

from tests.pipelines.conftest import digests
from tests.test_docs import blocks

pytestmark = pytest.mark.engines


def test_the_page_on_engines_runs_from_top_to_bottom_and_every_engine_gives_the_same(cluster, tmp_path):
    path = f"{pathlib.Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    for text in blocks("docs/engines.md", "sh"):
        command = ["bash", "-euo", "pipefail", "-c", text.replace("localhost:8081", cluster.address)]
        done = subprocess.run(
            command, cwd=tmp_path, env={**os.environ, "PATH": path}, capture_output=True, text=True
        )
        assert done.returncode == 0, f"{text}\n{done.stderr}"
    roots = ["two", "flink", "cluster"]
    two, *others = (digests(tmp_path / root) for root in roots)
    assert len(two) > 10
    assert all(other == two for other in others)
