"""Versions that held a purged log are read without it, where a filter leaves it out."""

import numpy as np
import pytest

import logloom.datasets
from logloom.errors import PurgedError
from logloom.io.catalog.manifest import read_manifest
from logloom.io.storage.store import Store
from logloom.pipelines.purge.purge import purge
from tests.absent import outputs_present, present
from tests.forking import command
from tests.pipelines.conftest import build_at

UNITS = present("table", "tar", "bags", "parquet")  # outputs that keep the units of each log
WHOLE = present("zarr", "lerobot", "l5kit")  # outputs of all logs together
OUTPUTS = outputs_present("""\
outputs:
  table: {columns: [ego.*]}
  tar: {columns: [ego.*]}
  bags: {columns: [ego.*]}
  parquet: {columns: [ego.*]}
  zarr: {columns: [ego.*]}
  lerobot: {fps: 10, task: drive, features: {action: [ego.speed]}}
  l5kit: {host: demo, translation: ego.position, rotation: ego.rotation}
partition: {rows: 10}
""")
GONE, LEFT = "drive-00", "drive-01"


@pytest.fixture(scope="module")
def purged(drive, tmp_path_factory):
    """A root from whose one version a log was purged, and the speeds of the other log by output."""
    root = tmp_path_factory.mktemp("purged") / "root"
    build_at(drive.recipe(**{drive.text[drive.text.index("outputs:") :]: OUTPUTS}), root)
    assert [record.log_id for record in read_manifest(Store.at(str(root))).logs] == [GONE, LEFT]
    rows = logloom.datasets.open(root, output=UNITS[0], where=f"log_id == '{LEFT}'")
    stamps = rows.get_many(range(len(rows)))["timestamp"]
    assert purge(str(root), [GONE], reason="asked for").is_proven
    return str(root), stamps


@pytest.mark.parametrize("output", UNITS)
@pytest.mark.parametrize(
    "where",
    [f"log_id == '{LEFT}'", f"ego.speed > -1 and log_id != '{GONE}'", f"log_id in ['{LEFT}'] within 1s"],
)
def test_rows_of_other_logs_are_there_where_a_filter_excludes_the_purged_one(purged, output, where):
    root, stamps = purged
    for columns in (None, "ego.speed"):
        rows = logloom.datasets.open(root, 1, output, where=where, columns=columns)
        batch = rows.get_many(range(len(rows)))
        assert set(batch["log_id"]) == {LEFT}
        np.testing.assert_array_equal(batch["timestamp"], stamps)


@pytest.mark.parametrize("output", UNITS)
@pytest.mark.parametrize("where", [None, "ego.speed > -1", f"log_id == '{GONE}'"])
def test_rows_of_the_purged_log_are_refused_with_what_to_do(purged, output, where):
    root, _ = purged
    with pytest.raises(PurgedError) as refused:
        logloom.datasets.open(root, 1, output, where=where)[0]
    for words in ("was purged (asked for)", "open the newest", f"where=\"log_id != '{GONE}'\""):
        assert words in str(refused.value)


@pytest.mark.parametrize("output", WHOLE)
@pytest.mark.parametrize("where", [None, f"log_id == '{LEFT}'"])
def test_a_dataset_of_all_logs_is_refused_as_purged_and_names_the_log(purged, output, where):
    root, _ = purged
    with pytest.raises(PurgedError) as refused:
        logloom.datasets.open(root, 1, output, where=where)
    said = str(refused.value)
    assert said.startswith(f"{root}: {output} of split 'all' in version 1: was purged (asked for)")
    assert f"log {GONE} that it held rows of" in said


def test_the_commands_do_likewise(purged):
    root, stamps = purged
    found = command("find", f"{root}@1", f"ego.speed > -1 and log_id == '{LEFT}'", "--output", "tar")
    assert found.returncode == 0, found.stderr
    assert LEFT in found.stdout
    assert f"{len(stamps)} of {len(stamps)} rows" in " ".join(found.stdout.split())
    for output in (*UNITS, *WHOLE):
        refused = command("head", f"{root}@1", "--output", output)
        assert refused.returncode == 1
        assert "was purged (asked for)" in refused.stderr
