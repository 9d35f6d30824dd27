"""Docstrings: parameters and results of public functions and methods, and first lines of modules.

Public are the modules and names that the site's reference explains (docs/site/pages.py). Examples in
docstrings are run elsewhere (test_doctests).
"""

import ast
import importlib
import inspect
import re
from dataclasses import is_dataclass

import pytest

from tests.conftest import REPOSITORY

# How a summary begins that names the result itself; others need a section Returns or Yields.
NAMES_THE_RESULT = re.compile(
    r"(The|A|An|All|Each|One|Rows|Names|Options|What|Where|Which|Whether|Why|How|First|Digest|As|Number"
    r"|Adapt|Build|Choose|Compute|Copy|Create|Explain|Infer|Load|Make|Open|Parse|Suggest|Take"
    r"|Return|Yield|Read|List|Count|Find|Select|Decode|Convert|Concatenate|Describe|Plan|Index|View"
    r") |\(\w[^)]*,"
)
# These have the names and arguments of another package's, which explains them, or are classes of tests.
AS_ELSEWHERE = ("logloom.datasets.openmmlab", "logloom.testing")
RETURNS_NOTHING = (None, "None", "Self", "NoReturn", inspect.Signature.empty)


def listed(name):
    """A list at the top of docs/site/pages.py, which itself needs MkDocs."""
    tree = ast.parse((REPOSITORY / "docs/site/pages.py").read_text(encoding="utf-8"))
    (value,) = (
        node.value
        for node in tree.body
        if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == name
    )
    return eval(compile(ast.Expression(value), "docs/site/pages.py", "eval"))


def public_names():
    """Each public module with its names that are explained; None for those of its `__all__`."""
    for _, _, modules in listed("NAMES").values():
        yield from modules.items()
    yield from ((module, None) for module in listed("MODULES") if module not in AS_ELSEWHERE)


def is_ours(value):
    return value.__module__.startswith("logloom")


def functions_of(value):
    """(name, function, docstring) of a function, or of the public methods of a class.

    A method has the docstrings of those that it overrides, too, and `__init__` that of its class.
    """
    if not inspect.isclass(value):
        if inspect.isfunction(value) and not value.__name__.startswith("_"):
            yield value.__qualname__, value, inspect.getdoc(value) or ""
        return
    for name in sorted({name for base in value.__mro__ for name in vars(base)}):
        homes = [base for base in value.__mro__ if name in vars(base) and base is not object]
        if name.startswith("_") and (name != "__init__" or homes[:1] != [value] or is_dataclass(value)):
            continue
        found = [vars(base)[name] for base in homes]
        found = [getattr(one, "__func__", one) for one in found]  # of class methods and static ones
        if all(inspect.isfunction(one) and "." in one.__qualname__ for one in found) and all(
            map(is_ours, (*found, *homes))
        ):
            docs = [one.__doc__ and inspect.cleandoc(one.__doc__) for one in found]
            docs += [inspect.getdoc(value)] if name == "__init__" else []
            yield f"{value.__qualname__}.{name}", found[0], "\n\n".join(filter(None, docs))


def parameters_of(function):
    names = [*inspect.signature(function).parameters]
    return names[1:] if names[:1] in (["self"], ["cls"]) else names


def explained_in(doc):
    """The names that a docstring explains: in its section Args, or in backticks."""
    entries = re.findall(r"^    (\*{0,2}\w+(?:, \*{0,2}\w+)*):", doc, re.MULTILINE)
    return {name.strip("* ") for entry in entries for name in entry.split(",")} | set(
        re.findall(r"`\*{0,2}(\w+)", doc)
    )


def tells_the_result(function, doc):
    """Whether a docstring says what a function returns, where it returns something."""
    if function.__name__ == "__init__" or function.__annotations__.get("return") in RETURNS_NOTHING:
        return True
    return bool(re.search(r"^(Returns|Yields):$", doc, re.MULTILINE) or NAMES_THE_RESULT.match(doc))


@pytest.mark.parametrize(("module", "names"), list(public_names()))
def test_docstrings_explain_each_parameter_and_what_is_returned(module, names):
    home = importlib.import_module(module)
    values = [getattr(home, name) for name in names or home.__all__]
    for qualified, function, doc in (one for value in values for one in functions_of(value)):
        if re.search(r"\b[Ss]ee `\w+(\.\w+)*`", doc):
            continue  # it sends to a docstring that explains them
        missing = [one for one in parameters_of(function) if one not in explained_in(doc)]
        assert not missing, f"the docstring of {qualified} doesn't explain {', '.join(missing)}"
        assert tells_the_result(function, doc), f"the docstring of {qualified} doesn't say what it returns"


def test_the_first_line_of_each_module_is_within_80_characters():
    for path in sorted((REPOSITORY / "logloom").rglob("*.py")):
        docstring = ast.get_docstring(ast.parse(path.read_bytes())) or ""
        first = docstring.partition("\n")[0]
        assert len(first) <= 80, f"shorten the docstring of {path.relative_to(REPOSITORY)}: {first!r}"
