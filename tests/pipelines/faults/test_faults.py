"""Faults of a store between reading and writing: never damage, a difference, or fewer rows."""

import pytest

import logloom.io.formats.table as tt
from logloom.errors import StorageError, UsageError
from logloom.io.catalog.manifest import entries_of, open_root, read_assembled
from logloom.io.storage.remote import retries
from logloom.io.storage.store import Store
from logloom.pipelines.convert.convert import convert
from logloom.pipelines.convert.plan import plan_convert
from logloom.pipelines.convert.sources import open_source
from logloom.pipelines.verify.verify import reading_of, verify
from logloom.recipe import Recipe
from logloom.recipe.logs import expand_logs
from logloom.transforms.build.assembly.files import assembled_differences
from logloom.transforms.build.read_back import differences
from tests import faulty
from tests.absent import outputs_present, present
from tests.io.formats.table.making import drive as table_rows
from tests.pipelines.conftest import build_at, with_outputs

ALWAYS = 1 << 30
OUTPUTS = outputs_present("""
  bags: {types: {camera.front: jpg}}
  table: {index: [ego.speed]}
  zarr: {}
  annotations: {images: {img_path: camera.front}}
""")
FORMATS = present("tar", "bags", "table", "zarr", "l5kit", "annotations")


@pytest.fixture
def faults(monkeypatch):
    monkeypatch.setattr(retries, "WAITS", (0, 0, 0))
    found = faulty.install()
    yield found
    found.set()


@pytest.fixture(scope="module")
def everything(drive, root_of):
    """A version in every format, on a disk."""
    return root_of(Recipe.from_yaml(with_outputs(drive.text, OUTPUTS)))


@pytest.fixture
def version(everything, faults):
    """The version of `everything` in the store that fails."""
    put_all(everything, "root")
    return open_root(Store.at(f"{faulty.ROOT}/root"))


def put_all(folder, name):
    for path in sorted(path for path in folder.rglob("*") if path.is_file()):
        faulty.FaultyFiles().pipe_file(f"/bucket/{name}/{path.relative_to(folder)}", path.read_bytes())


@pytest.mark.parametrize("output", FORMATS)
def test_a_unit_that_a_dead_store_can_t_give_back_is_a_fault_of_the_store(version, faults, output):
    store, manifest = version
    reading = reading_of(store, manifest)
    units = [entry for _, entry in entries_of(store, manifest.logs) if entry.output == output and entry.rows]
    for entry in units[:2]:
        assert list(differences(reading, entry)) == []
        faults.set("reset", 0, ALWAYS)
        with pytest.raises(StorageError, match=f"{store.uri}/"):
            list(differences(reading, entry))
        assert faults.done
        faults.set()


@pytest.mark.parametrize("output", present("zarr", "l5kit", "annotations"))
def test_a_dataset_that_a_dead_store_can_t_give_back_is_a_fault_of_the_store(version, faults, output):
    store, manifest = version
    parts = [part for part in manifest.assembled if part.output == output]
    assert parts
    for part in parts:
        entry = read_assembled(store, part)
        faults.set()
        assert list(assembled_differences(store, part.identity, entry)) == []
        number = faults.requests
        assert number
        for at in range(0, number, max(1, number // 12)):
            faults.set("reset", at, ALWAYS)
            with pytest.raises(StorageError, match=f"{store.uri}/"):
                list(assembled_differences(store, part.identity, entry))
        faults.set()


@pytest.mark.parametrize("kind", ["reset", "time-out", "short", "403", "503"])
def test_a_store_that_fails_while_a_table_s_blobs_are_read_never_shortens_a_conversion(
    faults, tmp_path, kind
):
    tt.write_table(f"{faulty.ROOT}/t", table_rows(num_logs=2, rows=6))
    faults.set(kind, 3, ALWAYS, path=r"\.blob$")
    root = str(tmp_path / "root")

    def convert_skipping():
        source = open_source(f"{faulty.ROOT}/t", on_error="skip")
        return convert(plan_convert(source, root, "tar", on_error="skip"))

    with pytest.raises(StorageError, match=r"faulty://bucket/t/.*\.blob"):
        convert_skipping()
    assert not (tmp_path / "root" / "versions" / "00000001.json").exists()
    faults.set()
    done = convert_skipping()
    assert done.manifest.totals["rows"] == 12
    assert done.damaged == ()


def test_a_table_whose_creation_had_its_answer_lost_is_made_and_another_writer_s_is_refused(
    faults, monkeypatch
):
    create = Store.create

    def lose_answer(self, name, data):
        """As a client that asks again after the first answer was lost."""
        create(self, name, data)
        return create(self, name, data)

    def lose_race(self, name, data):
        create(self, name, data.replace(b"}", b" }", 1))
        return create(self, name, data)

    rows = table_rows(num_logs=2, rows=3)
    monkeypatch.setattr(Store, "create", lose_answer)
    tt.write_table(f"{faulty.ROOT}/t", rows)
    assert len(tt.read_index(f"{faulty.ROOT}/t")) == 6
    monkeypatch.setattr(Store, "create", lose_race)
    with pytest.raises(UsageError, match="another writer made a table"):
        tt.write_table(f"{faulty.ROOT}/u", rows)


def test_a_log_that_a_dead_store_can_t_give_back_is_no_difference_of_its_version(drive, faults, tmp_path):
    faulty.FaultyFiles().pipe_file("/bucket/logs/one.mcap", drive.logs[0].read_bytes())
    text = drive.text.replace(str(drive.logs[0].parent), f"{faulty.ROOT}/logs")
    root = tmp_path / "root"
    build_at(Recipe.from_yaml(text, source="drive.yaml"), root)
    assert verify(str(root), against_logs=True, num_workers=1).findings == ()
    faults.set()
    verify(str(root), against_logs=True, num_workers=1)
    number = faults.requests
    for at in sorted({0, number // 2, number - 1}):
        faults.set("reset", at, ALWAYS)
        with pytest.raises(StorageError, match=r"faulty://bucket/logs/one\.mcap"):
            verify(str(root), against_logs=True, num_workers=1)


@pytest.mark.parametrize("pattern", ["logs/*.mcap", "logs/drive-00.mcap", "logs"])
def test_logs_that_a_dead_store_can_t_list_are_no_mistake_of_the_recipe(drive, faults, tmp_path, pattern):
    put_all(drive.logs[0].parent, "logs")
    text = drive.text.replace(str(drive.logs[0].parent), f"{faulty.ROOT}/logs")
    recipe = Recipe.from_yaml(text).model_copy(update={"logs": (f"{faulty.ROOT}/{pattern}",)})
    faults.set("503", 0, ALWAYS)
    with pytest.raises(StorageError, match=r"logs: .*503|logs/: .*503"):
        expand_logs(recipe)
    assert faults.done
