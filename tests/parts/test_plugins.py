"""Parts of other packages that are broken, or have names of logloom's."""

import json
import os
import pathlib

import pytest

from logloom import parts
from logloom.demo import demo_recipe
from logloom.errors import UsageError
from logloom.io.formats import registry
from logloom.io.logs import opening
from logloom.pipelines.doctor.doctor import broken_parts
from logloom.transforms.rows.derive import columns as derive
from tests.cases import case
from tests.forking import command

REPOSITORY = pathlib.Path(__file__).parent.parent.parent
PART = "from logloom.parts import Part, Verb\nPART = Part({})\n"
OBJECTS = """\
from logloom.io.formats.interface import Format

class Kind:
    name, suffixes = "whole", (".whole",)
    def matches(self, uri, head): return False
    def open(self, uris, options): raise AssertionError

class Listing(Kind):
    name, suffixes = "listing", [".listing"]

class Silent:
    name, suffixes = "silent", (".silent",)
    def open(self, uris, options): raise AssertionError

class NoFormat:
    name = "noformat"

class Short(Format):
    name, semantics, Options = "short", 1, dict
    def check(self, options, schema): return []

class Half:
    def __init__(self, info): pass
    def column_type(self, spec): raise AssertionError

class Stopped:
    def __init__(self, options, size): pass

KIND, LISTING, SILENT, NO_FORMAT, SHORT = Kind(), Listing(), Silent(), NoFormat(), Short()
TEXT = "no function"
"""
# An offer of the part `acme`, its place, and what the error says of it.
OFFERS = [
    ("outputs", "gone", "acme_gone:FORMAT", "can't import acme_gone:FORMAT (ModuleNotFoundError: No module"),
    ("outputs", "noformat", "acme:NO_FORMAT", "acme:NO_FORMAT is an object of type NoFormat, not of"),
    ("outputs", "class", "acme:Short", "acme:Short is a class; name an instance of it"),
    ("outputs", "short", "acme:SHORT", "acme:SHORT lacks writer, reader"),
    ("logs", "class", "acme:Kind", "acme:Kind is a class; name an instance of it"),
    ("logs", "other", "acme:KIND", "acme:KIND has the name 'whole'"),
    ("logs", "silent", "acme:SILENT", "acme:SILENT lacks matches"),
    ("logs", "listing", "acme:LISTING", "acme:LISTING has suffixes that are no tuple"),
    ("decoders", "text", "acme:TEXT", "acme:TEXT is an object of type str, which can't be called"),
    ("decoders", "half", "acme:Half", "acme:Half lacks time_source, header_time, check, take"),
    ("decoders", "lost", "acme:LOST", "can't import acme:LOST (AttributeError: module 'acme' has no"),
    ("engines", "stopped", "acme:Stopped", "acme:Stopped lacks __enter__, __exit__, submit"),
    ("importers", "exits", "acme_exits:f", "can't import acme_exits:f (SystemExit: 7)"),
    ("jobs", "raises", "acme_raises:f", "can't import acme_raises:f (RuntimeError: no licence)"),
    ("pages", "text.html", "acme:TEXT", "acme:TEXT is an object of type str, which can't be called"),
    ("examiners", "syntax", "acme_syntax:f", "can't import acme_syntax:f (SyntaxError: "),
    ("verbs", "wave", "acme_gone", "can't import acme_gone (ModuleNotFoundError: No module"),
]  # fmt: skip
# Entry points that give no part, by name: the value, and what the error says.
POINTS = {
    "absent": ("acme_absent:PART", "can't import acme_absent:PART (ModuleNotFoundError: "),
    "exits": ("acme_exits:PART", "can't import acme_exits:PART (SystemExit: 7)"),
    "class": ("acme_class:Part", "acme_class:Part is the class Part, not a logloom.parts.Part"),
    "list": ("acme_list:PART", "outputs is no mapping from names to module:object"),
    "verb": ("acme_verb:PART", "verbs is no mapping from names to Verb"),
    "other": ("acme:TEXT", "acme:TEXT is an object of type str, not a logloom.parts.Part"),
    "colon": ("acme:", "can't import acme: ("),
}


def install(site, name, points, **files):
    """Install a distribution of version 1.0 by its entry points, a mapping by group, and its modules."""
    info = site / f"{name}-1.0.dist-info"
    info.mkdir(parents=True)
    (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: 1.0\n")
    lines = [
        f"[{group}]\n" + "".join(f"{k} = {v}\n" for k, v in own.items()) for group, own in points.items()
    ]
    (info / "entry_points.txt").write_text("\n".join(lines))
    for module, text in files.items():
        (site / f"{module}.py").write_text(text)


def part_of(offers):
    """The text of a module with a part of these offers."""
    fields = {}
    for what, name, place, *_ in offers:
        place = f"Verb({place!r}, 'Look', 'Wave.')" if what == "verbs" else repr(place)
        fields.setdefault(what, []).append(f"{name!r}: {place}")
    return PART.format(", ".join(f"{what}={{{', '.join(own)}}}" for what, own in fields.items()))


@pytest.fixture(scope="module")
def broken_site(tmp_path_factory):
    site = tmp_path_factory.mktemp("broken")
    modules = {
        "acme_part": part_of(OFFERS),
        "acme": OBJECTS,
        "acme_exits": "raise SystemExit(7)",
        "acme_raises": "raise RuntimeError('no licence')",
        "acme_syntax": "def",
        "acme_class": "from logloom.parts import Part",
        "acme_list": PART.format("outputs=['lines']"),
        "acme_verb": PART.format("verbs={'wave': 'acme'}"),
    }
    install(site, "acme", {"logloom.parts": {"acme": "acme_part:PART"}}, **modules)
    install(site, "acme-points", {"logloom.parts": {name: value for name, (value, _) in POINTS.items()}})
    install(site, "acme-derive", {"logloom.derive": {"labels": "acme_raises", "more": "acme_lost.of"}})
    return site


@pytest.fixture
def on_path(monkeypatch):
    """Makes a folder one of those with packages, for this process."""
    caches = (parts.plugins, opening.kind_named, registry.format_named)

    def add(site):
        monkeypatch.syspath_prepend(str(site))
        for cached in caches:
            cached.cache_clear()

    yield add
    monkeypatch.undo()
    for cached in caches:
        cached.cache_clear()


@pytest.fixture
def run_with():
    def run(site, *arguments, code=0, **env):
        path = os.pathsep.join([str(site), str(REPOSITORY)])
        done = command(*arguments, env={**os.environ, "PYTHONPATH": path, **env})
        assert done.returncode == code, (arguments, done.stdout, done.stderr)
        return done

    return run


def test_what_is_broken_is_named_with_package_and_entry_point_where_it_is_needed(broken_site, on_path):
    on_path(broken_site)
    for what, name, _, problem in OFFERS:
        with case(name), pytest.raises(UsageError) as raised:
            parts.load(what, name)
        where = f"acme 1.0, entry point 'acme' in logloom.parts: {parts._WORDS[what]} {name!r}: "
        assert str(raised.value).startswith(where + problem), raised.value
        assert str(raised.value).endswith("; upgrade or uninstall acme"), raised.value
    with pytest.raises(UsageError) as raised:
        parts.load("outputs", "of a part that can't be read")
    for name, (_, problem) in POINTS.items():
        assert f"acme-points 1.0, entry point {name!r} in logloom.parts: {problem}" in str(raised.value), name
    derive.check_allowed("acme_lost.of:labels", ())
    with pytest.raises(
        UsageError, match=r"\(acme-derive 1.0, entry point 'more' in logloom.derive\): No module"
    ):
        derive.load("acme_lost.of:labels")


def test_a_list_of_entry_points_that_cannot_be_read_is_named_with_its_package(tmp_path, on_path):
    install(tmp_path, "acme-torn", {})
    (tmp_path / "acme-torn-1.0.dist-info/entry_points.txt").write_text("[logloom.parts]\nno value\n")
    on_path(tmp_path)
    with pytest.raises(UsageError, match=r"acme-torn 1.0, entry point '' in logloom.parts: entry_points.txt"):
        parts.load("outputs", "nonsense")
    assert parts.load("logs", "mcap").name == "mcap"


def test_doctor_lists_all_that_is_broken(broken_site, on_path):
    on_path(broken_site)
    listed = list(map(str, broken_parts()))
    assert len(listed) == len(set(listed)) == len(OFFERS) + len(POINTS) + 2
    for *_, problem in (*OFFERS, *((name, text) for name, (_, text) in POINTS.items())):
        assert any(problem in line for line in listed), problem
    for module in ("acme_raises", "acme_lost.of"):
        assert any("acme-derive 1.0" in line and f"can't import {module} (" in line for line in listed)


def test_nothing_broken_breaks_a_command_that_does_not_need_it(broken_site, logs_of, tmp_path, run_with):
    (log, *_) = sorted(logs_of(1, 1).glob("*.mcap"))
    recipe, root = tmp_path / "recipe.yaml", tmp_path / "root"
    text = demo_recipe(log.parent)
    recipe.write_text(text)
    for arguments in (
        ["--help"],
        ["build", "--help"],
        ["convert", "--help"],
        ["info", log],
        ["info", log, "--recipe"],
        ["plan", recipe, "--to", root],
        ["build", recipe, "--to", root, "--workers", "1"],
        ["head", root],
        ["stats", root],
        ["status", root],
        ["versions", root],
        ["verify", root],
        ["gc", root, "--dry-run"],
        ["demo", "--to", tmp_path / "demo", "--seconds", "1"],
    ):
        done = run_with(broken_site, *arguments)
        assert "acme" not in (done.stdout + done.stderr).replace("text.html", ""), arguments
    completed = {"_LOGLOOM_COMPLETE": "complete_bash", "COMP_WORDS": "logloom bui", "COMP_CWORD": "1"}
    assert run_with(broken_site, **completed).stdout.split() == ["build"]
    examined = json.loads(run_with(broken_site, "doctor", log, "--json").stdout)
    assert {one["package"] for one in examined["broken_parts"]} >= {"acme 1.0", "acme-points 1.0"}
    assert (
        "broken part of another package: acme 1.0, entry point 'acme'"
        in run_with(broken_site, "doctor", log).stdout
    )


def test_a_command_that_needs_what_is_broken_names_it(broken_site, logs_of, tmp_path, run_with):
    (log, *_) = sorted(logs_of(1, 1).glob("*.mcap"))
    recipe, strange = tmp_path / "recipe.yaml", tmp_path / "drive.silent"
    strange.write_bytes(b"some bytes of a log")
    head, _ = demo_recipe(log.parent).split("outputs:")
    recipe.write_text(f"{head}outputs: {{short: {{}}}}\n")
    for code, arguments in (
        (2, ["build", recipe, "--to", tmp_path / "root"]),
        (2, ["build", recipe, "--to", tmp_path / "root", "--runner", "stopped"]),
        (1, ["info", strange]),
        (2, ["wave"]),
        (2, ["label", "import", strange, "--tool", "exits", "--to", tmp_path / "labels.parquet"]),
    ):
        done = run_with(broken_site, *arguments, code=code)
        assert "acme 1.0, entry point 'acme' in logloom.parts: " in done.stderr, (arguments, done.stderr)


@pytest.fixture
def hiding_site(tmp_path):
    """Two packages whose parts have names of logloom's and of each other's."""
    site = tmp_path / "hiding"
    hidden = registry.format_names()[-1]
    own = [
        ("outputs", hidden),
        ("logs", "mcap"),
        ("decoders", "cdr"),
        ("engines", "direct"),
        ("verbs", "stats"),
    ]
    offers = [(what, name, "acme_hiding:ANY") for what, name in [*own, ("outputs", "lines")]]
    install(site, "acme-hiding", {"logloom.parts": {"any": "acme_hiding:PART"}}, acme_hiding=part_of(offers))
    lines = part_of([("outputs", "lines", "acme_lines:ANY")])
    install(site, "acme-lines", {"logloom.parts": {"any": "acme_lines:PART"}}, acme_lines=lines)
    return site, [*own, ("outputs", "lines")]


def test_a_name_of_two_packages_is_an_error_that_names_both(hiding_site, on_path):
    site, offers = hiding_site
    on_path(site)
    for what, name in offers:
        other = "acme-lines 1.0" if name == "lines" else "logloom "
        if (what, name) != ("verbs", "stats"):  # of no part
            with case(name), pytest.raises(UsageError) as raised:
                parts.load(what, name)
            assert f"{parts._WORDS[what]} {name!r} is offered by" in str(raised.value)
            assert "acme-hiding 1.0 (entry point 'any' in logloom.parts)" in str(raised.value)
            assert other in str(raised.value)
    listed = [str(one) for one in broken_parts(["stats"])]
    for what, name in offers:
        assert any(f"{parts._WORDS[what]} {name!r}" in line for line in listed), name


def test_only_commands_that_use_such_a_name_are_refused(hiding_site, logs_of, tmp_path, run_with):
    site, _ = hiding_site
    (log, *_) = sorted(logs_of(1, 1).glob("*.mcap"))
    recipe = tmp_path / "recipe.yaml"
    recipe.write_text(demo_recipe(log.parent))
    root = tmp_path / "root"
    for arguments in (["info", log], ["stats", root], ["doctor", log], ["build", recipe, "--to", root]):
        done = run_with(site, *arguments, code=2)
        assert "is offered by logloom " in done.stderr, done.stderr
        assert "acme-hiding 1.0 (entry point 'any' in logloom.parts)" in done.stderr
    assert not root.exists()
    for arguments in (["--help"], ["build", "--help"], ["versions", "--help"]):
        run_with(site, *arguments)


def test_a_hidden_output_breaks_no_version_of_others(logs_of, tmp_path, run_with):
    (log, *_) = sorted(logs_of(1, 1).glob("*.mcap"))
    recipe, root, site = tmp_path / "recipe.yaml", tmp_path / "root", tmp_path / "site"
    recipe.write_text(demo_recipe(log.parent))
    others = [name for name in registry.format_names() if f"  {name}:" not in recipe.read_text()]
    lines = part_of([("outputs", others[0], "acme_part:ANY")])
    install(site, "acme", {"logloom.parts": {"any": "acme_part:PART"}}, acme_part=lines)
    run_with(site, "build", recipe, "--to", root, "--workers", "1")
    run_with(site, "head", root)
    done = run_with(site, "convert", root, tmp_path / "other", "--format", others[0], code=2)
    assert f"output {others[0]!r} is offered by logloom " in done.stderr
