"""Names that other tools use, and logloom's equivalents, for error messages.

These are no aliases: the error of an unknown name contains ours.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from types import MappingProxyType

# By kind of name: ours, by the names of others. Several names share a line.
_COMMANDS = {
    "ls list": "versions, or info for logs",
    "cat sample peek read load open": "head",
    "inspect describe topics": "info for logs, head and stats for a dataset",
    "summary summarize statistics": "stats",
    "validate check test fsck lint": "verify for a dataset, doctor for logs",
    "export import transform": "convert for another format, build for logs",
    "merge concat append add update extend create make run write ingest": "build, which adds logs to a root",
    "rm remove delete": "drop for logs, gc for old versions, purge to erase",
    "clean prune vacuum": "gc",
    "undo revert restore reset": "rollback",
    "fix mend recover": "repair for a dataset; `build --on-error salvage` for logs",
    "init new": "info LOG --recipe",
    "log history": "versions",
    "schema": "info for logs, head for a dataset",
    "query filter search grep select where": "find, or head --where",
    "compare": "diff",
    "split": "the recipe's `split`",
    "serve visualize plot play": "report, or show",
}
_OPTIONS = {
    "--output -o --out --output-dir --dest --dst --root --target --dataset -d": "--to",
    "--jobs -j --num-workers --processes --threads --parallel --nproc -w": "--workers",
    "--force -f --overwrite --yes -y": "no option, as nothing is overwritten",
    "--format -F --output-format": "--format --json",
    "--limit -n --num --rows --head --max --first": "-n --most --limit",
    "--column --fields --field --select --features": "--columns",
    "--filter --query --condition --expr": "--where",
    "--verbose -v --log-level": "--debug",
    "--logs --input -i --bag --episode --drive --take": "--log; or give it as an argument",
    "--config -c --recipe --file": "an argument: the recipe's file",
    "--version --tag --revision": "ROOT@VERSION, as in data@3 or data@best",
    "--from --src --source": "an argument",
    "--to": "--format",
    "--seed --shuffle --random": "no option; rows and splits are the same each time",
    "--silent --no-progress": "--quiet",
}
_KEYS = {
    "frequency freq hz rate fps period": "clock: {rate: 10}",
    "topic topics fields features messages signals": "columns",
    "filter filters condition": "rows: {where: ...}",
    "output format formats exports": "outputs",
    "sources source files input inputs bags data paths": "logs",
    "splits train val test": "split: {train: 0.9, val: 0.1}",
    "interpolation interp resample tolerance": "a key of each column: resample, tolerance",
    "version seed": "no key; builds are numbered, and the same each time",
    "start end begin stop": "time: {from: ..., to: ...}",
    "schema": "the columns, with dtype and shape where they differ from the logs",
}
_COLUMN_KEYS = {
    "interp interpolation interpolate method policy mode": "resample",
    "max_age max_delay timeout max_gap within": "tolerance",
    "delay latency lag shift": "offset",
    "filter where condition": "where at the top, under `rows`",
    "path key attribute attr msg_field fields source": "field",
    "type datatype": "dtype for numbers, `as` for images and clouds",
    "units": "unit",
    "rate frequency freq hz fps": "clock at the top; a window is `resample: window, window: [-100ms, 0ms]`",
    "topics channel name": "topic; of several, `topic: {any: [/a, /b]}` or `names` of joints",
    "size width height resolution": "resize",
    "default fill_value fill fillna": "`derive`, a column whose function fills in values; see `c.available`",
    "required require": "require at the top, under `rows`",
    "rename": "the name before the topic, as in `speed: {topic: /can, field: v}`",
    "schema": "dtype and shape",
    "merge": "topic, as `{any: [/a, /b]}`",
    "median std var quantile": "resample: window, and a `derive` column that computes it",
}
_CLOCK_KEYS = {
    "frequency freq hz fps": "rate",
    "period dt interval step": "rate: one by the period",
    "start end begin stop": "time at the top: {from: ..., to: ...}",
}
_TIME_KEYS = {"start begin since": "from", "end stop until": "to"}
_POLICIES = {
    "ffill forward_fill pad hold latest zero_order_hold zoh sample_and_hold locf asof backward": "previous",
    "bfill backfill backward_fill forward": "next",
    "interpolate interp bilinear interpolation lerp linear_interpolation": "linear",
    "cubic spline quadratic": "linear",
    "closest nn nearest_neighbor nearest_neighbour": "nearest",
    "average avg mean_over": "mean",
    "quaternion quat": "slerp",
    "constant once latched": "static",
    "none identity raw": "exact",
    "median std var quantile": "window, with a `derive` column that computes it",
    "list history": "window, or all",
}
_FUNCTIONS = {
    "load read load_dataset open_dataset dataset Dataset from_root": "open",
    "DataLoader dataloader": "Loader",
    "export to_format convert_dataset": "convert",
    "validate check": "verify",
    "load_recipe from_yaml": "Recipe.load",
    "concat concatenate append": "datasets.concat",
    "interleave merge": "mix",
    "split train_test_split random_split": "datasets.split",
    "find search": "datasets.find",
    "write create": "build",
    "info head stats doctor": "open for rows; the command has the verb",
}
_LOADER = {
    "num_workers": "workers",
    "collate_fn transform transforms": "fns",
    "prefetch_factor": "prefetch",
    "drop_last": "no argument, as all batches are full: they go on across epochs",
    "epochs num_epochs repeat": "no argument, as batches are endless: an epoch has len(rows) // batch",
    "rank shard": "shard_id",
    "world_size num_replicas": "num_shards",
    "generator random_state": "seed",
    "sampler batch_sampler": "shuffle; or select rows first: rows.take(...)",
    "pin_memory persistent_workers timeout": "no argument; workers stay, and batches are in shared memory",
    "multiprocessing_context": "mp",
}

_FILTERS = {
    "= ===": "==",
    "<>": "!=",
    ".": "a dotted name, as in corners.1.x",
    "& && AND": "and",
    "| || OR": "or",
    "! ~ NOT": "not",
    "IN": "in",
    "TRUE": "true",
    "FALSE": "false",
    "is IS": "available(column), or not available(column)",
    "None none NULL null NaT": "available(column), or not available(column)",
    "isnull isna is_null notnull notna is_not_null": "available(column), or not available(column)",
    "nan NaN is_nan": "isnan(column)",
    "is_finite": "isfinite(column)",
    "isinf is_infinite": "not isfinite(column) and not isnan(column)",
    "BETWEEN between is_between": "a chain, as in 1 <= column <= 2",
    "LIKE like ILIKE ilike REGEXP regexp regexp_matches match contains startswith endswith": "== or in; for "
    "parts of texts `rows.filter` with a function",
    "ABS fabs absolute": "abs(column)",
    "ROUND round FLOOR floor CEIL ceil TRUNC trunc": "a range, as in 0.5 <= column < 1.5",
    "LEN LENGTH size length cardinality array_length list_length": "len(column)",
    "DATE date to_date datetime to_datetime to_timestamp Timestamp TIMESTAMP datetime64": "a text, as in "
    "timestamp >= '2026-01-31'",
    "INTERVAL interval Timedelta timedelta to_timedelta": "a number with a unit, as in x.age < 10ms",
    "now NOW today": "a date as text, as in timestamp >= '2026-01-31'",
    "col field": "the name alone; `in backticks` if it is a word of the language",
    "// % ** ^": "+, -, * or /; for others `rows.filter` with a function, or a derived column",
}
_DATASET = {
    # rows
    "num_rows num_samples size count": "len(rows)",
    "shape": "(len(rows), len(rows.columns))",
    "iloc loc iat at get row": "rows[7], rows[2:5] or rows[[1, 2]]",
    "iterrows itertuples iter iter_rows": "for row in rows",
    "to_list to_dict to_dicts tolist": "list(rows)",
    "limit first": "head",
    "last": "tail",
    "skip": "rows[n:]",
    "slice": "rows[start:stop]",
    "select_rows Subset": "take",
    "sample": "shuffle(seed).head(n)",
    "sort sort_values order_by orderby": "sort_by",
    "sort_index": 'sort_by(["log_id", "timestamp"])',
    "permute random_shuffle": "shuffle",
    "query where mask": "filter",
    "isna isnull notna notnull dropna drop_nulls": 'filter("available(x)")',
    "drop_duplicates distinct nunique value_counts": "unique",
    # columns
    "column_names features column names": "columns",
    "dtypes types": "schema, or spec of samples",
    "select_columns project filter_columns": "select",
    "remove_columns drop_columns pop": "drop",
    "rename_columns rename_column": "rename",
    "add_column assign with_column with_columns insert apply transform": "map",
    "applymap cast astype cast_column": "map",
    "fillna fill_null interpolate resample": "map here, or `resample` and `derive` of a recipe",
    "describe agg aggregate mean std var min max median quantile sum": "stats",
    "info explain": "print(rows)",
    "rolling shift diff delta_timestamps": "window",
    "hist boxplot": "plot, or the histogram of stats",
    # datasets
    "batch iter_batches batches": "to_batches, or logloom.Loader for training",
    "train_test_split random_split": "logloom.datasets.split",
    "concatenate concat append extend union vstack": "logloom.datasets.concat",
    "interleave merge": "logloom.datasets.mix",
    "groupby group_by join pivot": 'to_pandas(["x"]), which has it',
    "repeat": "no method, as a Loader goes on across epochs",
    "prefetch cache": "no method; a Loader prefetches, and rows of the format `table` are quick to read",
    # other libraries
    "to_table arrow": "to_arrow",
    "to_numpy values": "get_many",
    "to_torch with_format set_format": "torch(), to_arrow or to_pandas",
    "to_tf_dataset as_numpy_iterator": "for row in rows",
    "to_csv to_parquet to_json to_feather to_pickle": 'to_pandas(["x"]), which has it',
    "save_to_disk write save push_to_hub": "logloom.convert",
}
_MIXTURE = {
    "head": "mixture[:n]",
    "tail": "mixture[-n:]",
    "take": "mixture[:n] or mixture[[1, 2]]",
    "shuffle": "no method, as a mixture comes shuffled; pass seed= to mix",
    "shard": "mixture[number::count], or shard_id= and num_shards= of a Loader",
    "datasets sources": "mixture.rows.parts",
    "unique": 'logloom.datasets.concat([…]).unique("x")',
}


def _by_name(table: Mapping[str, str]) -> Mapping[str, str]:
    found: dict[str, str] = {}
    for names, own in table.items():
        for name in names.split():
            found.setdefault(name, own)
    return MappingProxyType(found)


COMMANDS, KEYS, COLUMN_KEYS, CLOCK_KEYS, TIME_KEYS = map(
    _by_name, (_COMMANDS, _KEYS, _COLUMN_KEYS, _CLOCK_KEYS, _TIME_KEYS)
)
POLICIES, FILTERS, FUNCTIONS, LOADER, DATASET, MIXTURE = map(
    _by_name, (_POLICIES, _FILTERS, _FUNCTIONS, _LOADER, _DATASET, _MIXTURE)
)


def ours(name: str, table: Mapping[str, str]) -> str:
    """Extend a message on an unknown name by what we call it; "" if the name isn't known elsewhere either.

    >>> ours("ffill", POLICIES), ours("x", POLICIES)
    ('; here it is previous', '')
    """
    return f"; here it is {table[name]}" if name in table else ""


def our_option(name: str, offered: Collection[str]) -> str:
    """`ours` for an option of the command line: the first that a command offers.

    >>> our_option("--output", ["--to", "--json"]), our_option("--output", ["--json"])
    ('; here it is --to', '')
    """
    offered = {*offered, "--debug"}  # before any command
    for names, own in _OPTIONS.items():
        if name not in names.split():
            continue
        options = [one for one in own.split() if one.rstrip(",;").startswith("-")]
        if own.split() == options:
            found = next((option for option in options if option in offered), "")
            if not found:
                continue
            return f"; here it is {found}"
        first = own.split()[0].rstrip(",;")
        if not first.startswith("-") or first in offered:
            return f"; here it is {own}"
    return ""
