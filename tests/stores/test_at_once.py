"""Two builds into one root at once, in object stores."""

import pytest

from tests.pipelines.faults.racing import different_logs, equal_logs

pytestmark = pytest.mark.engines


def test_of_two_builds_of_different_logs_one_commits_and_the_other_builds_on_it(
    drive, store, bucket, tmp_path
):
    different_logs(drive, f"{bucket}/root", tmp_path, store.storage_options)


def test_two_builds_of_the_same_logs_make_one_version(drive, store, bucket, tmp_path):
    equal_logs(drive, f"{bucket}/root", tmp_path, store.storage_options)
