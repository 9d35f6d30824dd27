"""Which logs removed versions had."""

import pytest

from logloom.errors import DatasetError
from logloom.io.catalog.removed_versions import PAST, had_log, keep_past
from logloom.io.storage.store import Store
from tests.pipelines.roots import commit_version


def test_a_page_that_is_gone_still_tells_which_logs_it_had_and_no_name(tmp_path):
    store = Store.at(str(tmp_path / "root"))
    logs = commit_version(store, 1, ["car-a", "car-b"]).logs
    (page,) = logs.pages
    assert had_log(store, page.digest, "car-a") is None
    keep_past(store, page, logs.folder)
    assert [had_log(store, page.digest, name) for name in ("car-a", "car-b", "car-c")] == [True, True, False]
    data = store.read(f"{PAST}/{page.digest}")
    assert len(data) == 2 * 8 + 16
    for damage in (b"", data[:-1], data[:3] + b"x" + data[4:]):
        store.replace(f"{PAST}/{page.digest}", damage)
        with pytest.raises(DatasetError, match=r"past/.*: damaged"):
            had_log(store, page.digest, "car-a")
