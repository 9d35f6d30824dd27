import json
from urllib.parse import quote, unquote

import numpy as np
from pydantic import BaseModel, ConfigDict

from logloom.blocks import Block, Ragged
from logloom.errors import DatasetError, LogloomError
from logloom.io.formats.assembly import by_log, parts_json
from logloom.io.formats.interface import AssembledFormat, AssemblyPlan
from logloom.io.formats.stages import StageWriter
from logloom.io.rows.unit_rows import LoadedReader
from logloom.io.storage.faults import MISSING
from logloom.io.storage.store import Store
from logloom.schema import TIMESTAMP, Schema


class Options(BaseModel):
    model_config = ConfigDict(extra="forbid")


class LinesWriter(StageWriter):
    def __init__(self, directory, schema, context):
        super().__init__(directory, context)
        self.types = {"timestamp": TIMESTAMP, **schema.all}

    def stage(self, block):
        for row in range(len(block)):
            values = [np.asarray(block.columns[n][row], t.dtype) for n, t in self.types.items()]
            line = json.dumps([[value.shape, value.tobytes().hex()] for value in values])
            self.write("rows", line.encode() + b"\n")


class LinesReader(LoadedReader):
    def __init__(self, store, name, schema, log_id, partition, rows=None):
        self.store, self.name, self.known = store, name, schema
        self.log_id, self.partition, self.count = log_id, partition, rows

    def load(self):
        try:
            lines = read(self.store, self.name).decode().splitlines() if self.count != 0 else []
            if self.count not in (None, len(lines)):
                raise ValueError(f"{len(lines)} rows, {self.count} were written")
            rows = [json.loads(line) for line in lines]
            columns = {}
            for number, (name, ctype) in enumerate({"timestamp": TIMESTAMP, **self.known.all}.items()):
                values = [
                    np.frombuffer(bytes.fromhex(text), ctype.dtype).reshape(shape)
                    for shape, text in (row[number] for row in rows)
                ]
                columns[name] = Ragged.from_rows(values, ctype) if ctype.is_ragged else np.array(values)
            return self.known, Block(self.log_id, self.partition, 0, columns) if rows else None
        except LogloomError:
            raise
        except Exception as error:
            raise DatasetError(f"{self.store.uri_of(self.name)}: damaged ({error})") from error


class LinesFormat(AssembledFormat):
    name, semantics, Options = "lines", 1, Options

    def check(self, options, schema):
        return [f"{name} is {ctype}" for name, ctype in schema.columns.items() if ctype.kind == "lists"]

    def writer(self, directory, schema, options, context):
        return LinesWriter(directory, schema, context)

    def reader(self, directory, schema, options, entry, *, storage_options=None):
        store = Store.at(directory, storage_options)
        log_id, partition = entry.get("log_id", ""), entry.get("partition", "")
        return LinesReader(store, "rows", schema, log_id, partition, entry.get("rows", 0))

    def plan_assembly(self, store, units, schema, options, period):
        tasks = [(log_id, [unit.folder for unit in own]) for log_id, own in by_log(units).items()]
        about = json.dumps(schema.to_json()).encode()
        return AssemblyPlan(tasks, {"lines.json": about}, {"parts": parts_json(units)})

    def make_chunk(self, store, task):
        log_id, folders = task
        return file_of(log_id), b"".join(read(store, f"{folder}/rows") for folder in folders)

    def recognises(self, store):
        return "lines.json" in store.names()

    def units(self, store):
        try:
            schema = Schema.from_json(json.loads(read(store, "lines.json")))
        except ValueError as error:
            raise DatasetError(f"{store.uri_of('lines.json')}: damaged ({error})") from error
        logs = sorted(unquote(name[:-6]) for name in store.names() if name.endswith(".jsonl"))
        return [LinesReader(store, file_of(log_id), schema, log_id, "") for log_id in logs]


def file_of(log_id):
    return f"{quote(log_id, safe='')}.jsonl"


def read(store, name):
    try:
        return store.read(name)
    except MISSING:
        raise DatasetError(f"{store.uri_of(name)}: missing; build it again") from None


FORMAT = LinesFormat()
