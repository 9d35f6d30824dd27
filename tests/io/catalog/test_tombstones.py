"""What was erased from a root, and which logs may be what was erased."""

from logloom.io.catalog.tombstones import Purged, Tombstone, digest_of_log, write_tombstone
from logloom.io.storage.store import Store


def test_logs_that_may_have_been_erased_are_known_by_name_or_size(tmp_path):
    store = Store.at(str(tmp_path))
    assert not Purged(store).may_have("drive", 10)
    write_tombstone(store, Tombstone(digest_of_log("drive"), ("content",), (), (), "", (), (), (10,)))
    erased = Purged(store)
    assert (erased.has("content"), erased.has_named("drive"), erased.had_whole("drive")) == (True, True, True)
    assert erased.may_have("drive", 7)
    assert erased.may_have("other", 10)
    assert erased.may_have("other", None)
    assert not erased.may_have("other", 7)
    write_tombstone(store, Tombstone(digest_of_log("old"), ("more",), (), (), "", (), (), ()))
    assert Purged(store).may_have("other", 7)  # sizes were not noted then


def test_a_log_of_which_a_part_was_erased_is_not_gone(tmp_path):
    store = Store.at(str(tmp_path))
    write_tombstone(store, Tombstone(digest_of_log("drive"), (), (), (), "", ((5, 9),), ("content",), ()))
    erased = Purged(store)
    assert (erased.has("content"), erased.had_whole("drive")) == (False, False)
    assert not erased.may_have("drive", 10)
    assert erased.has_rows_of("content")
    assert erased.redactions == {digest_of_log("drive"): ((5, 9),), "content": ((5, 9),)}
