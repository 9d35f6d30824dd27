"""How much a run of the tests tries, by LOGLOOM_TIER.

check: a sample, the same in each run (`make check`); what runs unless something else is asked for.
nightly: a file of each kind, each field, and each place of the code that a fault may meet; new examples of
properties in each run (`make nightly`).
exhaust: each file, each value of a field, and each single call (`make exhaust`).
"""

import os
from typing import TypeVar

T = TypeVar("T")

TIERS = ("check", "nightly", "exhaust")
TIER = os.environ.get("LOGLOOM_TIER") or "check"
assert TIER in TIERS, f"LOGLOOM_TIER={TIER}: unknown; write one of {', '.join(TIERS)}"
EXAMPLES = {"check": 25, "nightly": 200, "exhaust": 200}


def by_tier(check: T, nightly: T) -> T:
    """Return the first in the tier check, else the second."""
    return check if TIER == "check" else nightly


def examples(factor: float) -> int:
    """Return `max_examples` of a property whose examples are far cheaper or dearer than those of others."""
    return round(EXAMPLES[TIER] * factor)
