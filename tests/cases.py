"""Tables of cases in one test: a failure names its case.

for text, message in REFUSED:
    with case(text), pytest.raises(UsageError, match=message):
        parse(text)
"""

import contextlib
from collections.abc import Iterator


@contextlib.contextmanager
def case(*of: object) -> Iterator[None]:
    """Add what was tried to whatever the block raises."""
    try:
        yield
    except BaseException as error:
        error.add_note(f"case: {', '.join(map(repr, of))}")
        raise
