"""Names of other tools: each error of an unknown name says what it is here, and ours are right."""

import operator
import re
from types import SimpleNamespace

import pytest

import logloom as ll
import logloom.io.formats.table as tt
from logloom import familiar_names as names
from logloom.cli import verbs
from logloom.datasets import Dataset, Loader, Mixture
from logloom.datasets.version import _chosen_output
from logloom.errors import RecipeError, UsageError
from logloom.io.formats.registry import format_names
from logloom.parts import installed
from logloom.recipe import Recipe
from logloom.recipe.columns import TopicColumn
from logloom.recipe.sections import Time
from logloom.resample.policies import POLICIES
from tests.cases import case
from tests.forking import command

RECIPE = """\
name: t
logs: a.mcap
clock: {rate: 10}
columns:
  x: {topic: /x, field: data, resample: linear}
outputs: {tar: {}}
"""


def message_of(text):
    with pytest.raises(RecipeError) as caught:
        Recipe.from_yaml(text)
    return str(caught.value)


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("name: t", "name: t\nfrequency: 10", "frequency: unknown key; here it is clock: {rate: 10}"),
        ("name: t", "name: t\ntopics: [/x]", "topics: unknown key; here it is columns"),
        ("name: t", "name: t\noutput: {}", "output: unknown key; here it is outputs"),
        ("{rate: 10}", "{hz: 10}", "clock.hz: unknown key; here it is rate"),
        ("resample:", "interpolation:", "columns.x.interpolation: unknown key; here it is resample"),
        ("resample: linear", "max_age: 1s", "columns.x.max_age: unknown key; here it is tolerance"),
        ("resample: linear", "delay: 1s", "columns.x.delay: unknown key; here it is offset"),
        ("resample: linear", "type: float32", "columns.x.type: unknown key; here it is dtype for numbers"),
        (
            "resample: linear",
            "fillna: 0",
            "columns.x.fillna: unknown key; here it is `derive`, a column",
        ),
        ("resample: linear", "required: true", "unknown key; here it is require at the top, under `rows`"),
        ("resample: linear", "rename: y", "unknown key; here it is the name before the topic, as in `speed"),
        ("resample: linear", "schema: y", "unknown key; here it is dtype and shape"),
        ("name: t", "name: t\nstart: 5s", "start: unknown key; here it is time: {from: ..., to: ...}"),
        ("name: t", "name: t\ntime: {end: 5s}", "time.end: unknown key; here it is to"),
        ("{rate: 10}", "{rate: 10, start: 1s}", "clock.start: unknown key; here it is time at the top"),
        ("linear", "median", "no such policy as 'median'; here it is window, with a `derive` column"),
        ("linear", "std", "no such policy as 'std'; here it is window, with a `derive` column"),
        ("tar: {}", "webdataset: {}", "offers output 'webdataset'; here it is tar"),
        ("tar: {}", "hf: {}", "offers output 'hf'; here it is parquet"),
        ("tar: {}", "mmdet3d: {}", "offers output 'mmdet3d'; here it is annotations"),
        ("linear", "ffill", "columns.x.resample: no such policy as 'ffill'; here it is previous"),
        ("linear", "bilinear", "columns.x.resample: no such policy as 'bilinear'; here it is linear"),
        ("linear", "linaer", "columns.x.resample: no such policy as 'linaer'; did you mean linear?"),
    ],
)
def test_an_unknown_key_or_policy_of_a_recipe_says_what_is_ours(old, new, message):
    assert message in message_of(RECIPE.replace(old, new))


@pytest.mark.parametrize(
    ("call", "message"),
    [
        ("ls", "no such command 'ls'; here it is versions, or info for logs"),
        ("merge a b", "no such command 'merge'; here it is build, which adds logs to a root"),
        ("build r.yaml --output root", "no such option: --output; here it is --to"),
        ("build r.yaml -j 2", "no such option: -j; here it is --workers"),
        ("head root --format json", "no such option: --format; here it is --json"),
        ("head root --limit 3", "no such option: --limit; here it is -n"),
        ("convert a b --to zarr", "no such option: --to; here it is --format"),
        ("info a.mcap -v", "no such option: -v; here it is --debug"),
        ("head root --colums x", "no such option: --colums; did you mean --columns"),
    ],
)
def test_an_unknown_verb_or_option_says_what_is_ours(call, message, tmp_path):
    done = command(*call.split(), cwd=tmp_path)
    assert done.returncode == 2
    assert message in done.stderr


def test_an_unknown_name_in_python_says_what_is_ours(tmp_path):
    for name, own in (
        ("load", "open"),
        ("read", "open"),
        ("DataLoader", "Loader"),
        ("merge", "mix"),
        ("write", "build"),
    ):
        with pytest.raises(AttributeError, match=f"{name}.*; here it is {own}"):
            getattr(ll, name)
    tt.write_table(str(tmp_path / "t"), [{"log_id": "a", "timestamp": 0, "x": 1.0}])
    rows = ll.open(tmp_path / "t")
    for name, own in (
        ("num_rows", "len(rows)"),
        ("column_names", "columns"),
        ("to_table", "to_arrow"),
        ("sample", "shuffle(seed).head(n)"),
        ("sort", "sort_by"),
        ("shape", "(len(rows), len(rows.columns))"),
        ("describe", "stats"),
        ("query", "filter"),
        ("iloc", "rows[7], rows[2:5] or rows[[1, 2]]"),
        ("to_list", "list(rows)"),
        ("iterrows", "for row in rows"),
        ("batch", "to_batches, or logloom.Loader for training"),
        ("skip", "rows[n:]"),
        ("remove_columns", "drop"),
        ("rename_columns", "rename"),
        ("train_test_split", "logloom.datasets.split"),
        ("concatenate", "logloom.datasets.concat"),
        ("groupby", 'to_pandas(["x"])'),
        ("save_to_disk", "logloom.convert"),
    ):
        with pytest.raises(AttributeError, match=f"no attribute '{name}'; here it is {re.escape(own)}"):
            getattr(rows, name)
    with pytest.raises(AttributeError, match="a dataset has no attribute 'nothing'"):
        _ = rows.nothing
    with pytest.raises(UsageError, match=r"no output 'wds'; here it is tar"):
        _chosen_output(SimpleNamespace(outputs={"tar": {}, "table": {}}), "wds", "root@1")
    with pytest.raises(UsageError, match="no output 'hf'; there are t"):
        _chosen_output(SimpleNamespace(outputs={"tar": {}, "table": {}}), "hf", "root@1")
    for name, own in (("num_workers", "workers"), ("drop_last", "no argument"), ("collate_fn", "fns")):
        with pytest.raises(TypeError, match=f"'{name}'; here it is {own}"):
            Loader([], 2, **{name: 1})


def test_the_tables_name_only_what_exists_and_nothing_that_is_ours():
    known = {*verbs()}
    assert {own.split()[0].strip(",;`") for own in names.COMMANDS.values()} - known == {"the"}
    assert names.COMMANDS.keys().isdisjoint(known)
    policies = {re.split(r"\W", own)[0] for own in names.POLICIES.values()}
    assert policies <= set(POLICIES)
    assert names.POLICIES.keys().isdisjoint(POLICIES)
    fields = {info.alias or name for name, info in TopicColumn.model_fields.items()}
    assert names.COLUMN_KEYS.keys().isdisjoint(fields)
    others = {"where", "clock", "require", "the", "derive"}
    assert {own.split()[0].strip(",;:`") for own in names.COLUMN_KEYS.values()} - fields <= others
    assert names.KEYS.keys().isdisjoint(Recipe.model_fields)
    times = {info.alias or name for name, info in Time.model_fields.items()}
    assert names.TIME_KEYS.keys().isdisjoint(times)
    assert {*names.TIME_KEYS.values()} <= times
    outputs = dict(pair for part in installed().values() for pair in part.familiar.items())
    assert outputs.keys().isdisjoint(format_names())
    assert {*outputs.values()} < {*format_names()}
    assert not any(hasattr(Dataset, name) for name in names.DATASET)
    assert not any(hasattr(Mixture, name) for name in names.MIXTURE)
    for own in {*names.DATASET.values(), *names.MIXTURE.values()}:
        first = re.match(r"logloom[\w.]*|\w+", own.lstrip("("))[0]
        with case(own):
            if first.startswith("logloom"):
                assert operator.attrgetter(first.partition(".")[2])(ll)
            else:
                plain = {"rows", "mixture", "list", "len", "for", "print", "no", "columns"}
                assert first in plain or hasattr(Dataset, first)
    assert all(hasattr(ll, own.split()[0].partition(".")[0]) for own in names.FUNCTIONS.values())
