"""Tables that point into another root: what they point to is settled when a build is planned."""

import pytest

from logloom.io.storage.store import Store
from logloom.pipelines.build.build import build
from logloom.pipelines.plan.plan import plan_build
from logloom.pipelines.verify.verify import verify
from logloom.pipelines.versions.tag import tag
from tests.pipelines.conftest import build_at, digests, quick_recipe


@pytest.mark.parametrize("version", ["", "@latest", "@gold"])
def test_what_is_committed_there_meanwhile_changes_nothing(drive, tmp_path, version):
    logs = drive.logs[0].parent
    first = quick_recipe(logs, outputs="{table: {}}")
    held = str(tmp_path / "held")
    build(plan_build(first, held, limit=1))
    tag(Store.at(held), 1, ["gold"])
    pointing = quick_recipe(logs, outputs=f"{{table: {{reference: '{held}{version}'}}}}")
    build_at(pointing, tmp_path / "before")
    plan = plan_build(pointing, str(tmp_path / "late"))
    build(plan_build(first, held))  # a second version, which holds the chunks of all logs
    tag(Store.at(held), 2, ["gold"], move=True)
    build(plan)
    assert digests(tmp_path / "late") == digests(tmp_path / "before")
    assert verify(str(tmp_path / "late")).findings == ()
    again = build_at(pointing, tmp_path / "late")
    assert again.manifest.version == 2  # it points into the second version from now on
