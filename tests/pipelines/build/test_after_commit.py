"""What fails once a version is committed: it never looks as if nothing was."""

import pytest
import typer

from logloom.cli import commands
from logloom.errors import AfterCommitError, DatasetError, LogloomError, StorageError, after_commit
from logloom.io.catalog.version_files import version_numbers
from logloom.io.storage.store import Store
from logloom.pipelines.build import build as job
from logloom.pipelines.build.build import build
from logloom.pipelines.build.profile import profiled
from logloom.pipelines.plan.plan import plan_build


@pytest.mark.parametrize(
    ("error", "said"),
    [
        (StorageError("/d: full"), "version 7 of /d is committed, but what follows failed: /d: full\nNext"),
        (
            KeyError("x"),
            "version 7 of /d is committed, but what follows failed: internal error: KeyError: 'x'",
        ),
        (AfterCommitError("said already"), "said already"),
    ],
)
def test_any_error_after_a_commit_says_that_the_version_is_committed(error, said):
    with pytest.raises(AfterCommitError) as raised, after_commit("version 7 of /d", "Next"):
        raise error
    assert str(raised.value).startswith(said)


@pytest.fixture(scope="session")
def drive(quick_drive):
    return quick_drive


def lost_after(monkeypatch, error, forget=False):
    """Lets jobs run to their end, then fail as an engine does that is lost."""
    run = job._run

    def ends(plan, *arguments):
        run(plan, *arguments)
        if forget:  # what the commit said of itself is lost, too
            plan.job.store.remove(job.commit.outcome_file(plan.job))
        raise error

    monkeypatch.setattr(job, "_run", ends)


def test_an_engine_that_is_lost_after_the_commit_fails_no_build(drive, tmp_path, monkeypatch):
    lost_after(monkeypatch, LogloomError("the engine is gone"))
    built = build(plan_build(drive.recipe(), str(tmp_path / "root")), num_workers=1)
    assert built.manifest.version == 1
    assert (tmp_path / "root/v00000001").is_dir()


def test_a_job_that_fails_after_a_commit_whose_outcome_is_lost_says_so(drive, tmp_path, monkeypatch):
    lost_after(monkeypatch, StorageError("no space left"), forget=True)
    with pytest.raises(AfterCommitError, match=r"version 1 of .* is committed, .*: no space left"):
        build(plan_build(drive.recipe(), str(tmp_path / "root")), num_workers=1)
    assert version_numbers(Store.at(str(tmp_path / "root"))) == [1]


def failing(error):
    def fails(*_):
        raise error

    return fails


def test_what_a_build_does_after_its_commit_fails_as_such(drive, tmp_path, monkeypatch):
    monkeypatch.setattr(job, "with_view", failing(DatasetError("v00000001.json: damaged")))
    with pytest.raises(AfterCommitError, match=r"version 1 of .* is committed, .*: v00000001.json: damaged"):
        build(plan_build(drive.recipe(), str(tmp_path / "root"), limit=1), num_workers=1)


def test_a_build_that_cant_be_reported_is_committed(drive, tmp_path, monkeypatch):
    monkeypatch.setattr("logloom.cli.build._report_build", failing(KeyError("x")))
    build = ["build", str(drive.logs[0]), "--to", str(tmp_path / "root"), "--view", "none", "--quiet"]
    with pytest.raises(AfterCommitError, match=r"version 1 of .* is committed, .* KeyError: 'x'"):
        typer.main.get_command(commands("build"))(build, standalone_mode=False)


def test_a_profile_that_cant_be_written_at_the_end_is_a_warning(tmp_path):
    path, said = tmp_path / "profile.json", []
    with profiled(path, said.append):
        path.unlink()
        path.mkdir()
    assert said[0].startswith(f"warning: --profile {path}: can't be written")
