import io
import json

import numpy as np
from pydantic import BaseModel, ConfigDict

from logloom.blocks import Block, Ragged, concatenate
from logloom.errors import DatasetError, LogloomError
from logloom.io.formats.interface import Format
from logloom.io.rows.unit_rows import LoadedReader
from logloom.io.storage.faults import MISSING
from logloom.io.storage.store import Store
from logloom.schema import Schema


class Options(BaseModel):
    model_config = ConfigDict(extra="forbid")


class NpzWriter:
    def __init__(self, path, schema, context):
        self.path, self.schema, self.blocks = path, schema, []
        self.about = {"log_id": context.log_id, "partition": context.partition}

    def append(self, block):
        self.blocks.append(block)

    def close(self):
        if self.blocks:
            about = json.dumps({**self.about, "schema": self.schema.to_json()}).encode()
            arrays = {"about": np.frombuffer(about, np.uint8)}
            for name in ("timestamp", *self.schema.all):
                values = concatenate([block.columns[name] for block in self.blocks])
                if isinstance(values, Ragged):
                    arrays[f"shapes/{name}"], values = values.shapes, values.values
                arrays[f"values/{name}"] = values
            np.savez(self.path, **arrays)
        return {**self.about, "rows": sum(map(len, self.blocks))}


class NpzReader(LoadedReader):  # a unit is read whole when it is first asked for a row
    def __init__(self, store, name, schema=None):
        self.store, self.name, self.empty = store, name, schema

    def load(self):
        if self.empty is not None:
            return self.empty, None
        place = self.store.uri_of(self.name)
        try:
            arrays = np.load(io.BytesIO(self.store.read(self.name)))
            about = json.loads(arrays["about"].tobytes())
            schema = Schema.from_json(about["schema"])
            columns = {name: arrays[f"values/{name}"] for name in ("timestamp", *schema.all)}
            for name, ctype in schema.columns.items():
                if ctype.is_ragged:
                    columns[name] = Ragged(columns[name], arrays[f"shapes/{name}"])
            return schema, Block(about["log_id"], about["partition"], 0, columns)
        except LogloomError:
            raise
        except MISSING:
            raise DatasetError(f"{place}: missing; build it again") from None
        except Exception as error:  # a damaged archive fails in many ways
            raise DatasetError(f"{place}: damaged ({error}); build it again") from error


class NpzFormat(Format):
    name, semantics, Options = "npz", 1, Options

    def check(self, options, schema):  # all other types can be stored
        return [f"{name} is {ctype}" for name, ctype in schema.columns.items() if ctype.kind == "lists"]

    def writer(self, directory, schema, options, context):
        return NpzWriter(directory / "rows.npz", schema, context)

    def reader(self, directory, schema, options, entry, *, storage_options=None):
        empty = None if entry.get("rows") else schema
        return NpzReader(Store.at(directory, storage_options), "rows.npz", empty)

    def view(self, number, files):
        return dict.fromkeys(files, f"{number:06d}.npz")

    def recognises(self, store):
        return any(name.endswith(".npz") for name in store.names())

    def units(self, store):
        return [NpzReader(store, name) for name in store.names() if name.endswith(".npz")]


FORMAT = NpzFormat()
