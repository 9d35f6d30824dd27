"""Units of random rows with all types of columns that a format stores."""

from logloom.io.formats.interface import UnitContext
from logloom.io.formats.registry import format_named
from logloom.schema import Schema
from logloom.testing.rows import TYPES, random_block


def unit_of_all_types(name, folder, num_rows):
    """Write a unit of a format; return the source of its rows."""
    form = format_named(name)
    options = form.Options()
    types = {f"c{number}": ctype for number, ctype in enumerate(TYPES)}
    held = {one: ctype for one, ctype in types.items() if not form.check(options, Schema({one: ctype}))}
    schema = Schema(held, tuple(held)[:3])
    block = random_block(schema, num_rows, 0)
    folder.mkdir()
    writer = form.writer(folder, schema, options, UnitContext(block.log_id, "a.mcap", "", "all"))
    writer.append(block)
    entry = writer.close()
    entry.pop("columns", None)
    return form.reader(str(folder), schema, options, entry)
