"""Two builds into one root at once, on a disk; tests/stores has the same in object stores."""

from tests.pipelines.racing import different_logs, equal_logs


def test_of_two_builds_of_different_logs_one_commits_and_the_other_builds_on_it(drive, tmp_path):
    different_logs(drive, str(tmp_path / "root"), tmp_path)


def test_two_builds_of_the_same_logs_make_one_version(drive, tmp_path):
    equal_logs(drive, str(tmp_path / "root"), tmp_path)
