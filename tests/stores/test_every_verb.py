"""One request of each verb upon versions meets a fault on its way to a real store: an error that says so, or
the right end, and never half of one; run again, the verb succeeds.

In the tier check one request of each verb does, in nightly each request meets one fault in one store (since
whoever asks there can't be told), in exhaust each fault in each store.
"""

import itertools
import random

import pytest

from tests.pipelines.faults.test_every_call import READING, check, outcome
from tests.pipelines.verbs import VERBS, as_made, chosen, fresh, state, store_at
from tests.tier import TIER

pytestmark = [pytest.mark.engines, pytest.mark.faults]

KINDS = ("429", "503", "403", "reset", "lost")
# A store has no old objects that a test could make, so gc lists them and leaves them.
COMMANDS = {name: verb for name, verb in (VERBS | READING).items() if name != "gc"} | {
    "gc": (as_made, VERBS["gc"][1])
}


STORES = ("gcs", "s3")
CASES = [
    (store, command)
    for number, command in enumerate(COMMANDS)
    for store in (STORES if TIER == "exhaust" else [STORES[number % 2]])  # each takes seconds
]


@pytest.mark.parametrize(("store", "command"), CASES, indirect=["store"])
def test_a_request_that_meets_a_fault_on_its_way_ends_with_an_error_or_the_right_state(
    two_versions,
    store,
    bucket,
    tmp_path,
    command,
):
    prepare, run = COMMANDS[command]
    template, rng = fresh(two_versions, prepare, tmp_path / "template"), random.Random(command)
    numbers, options = itertools.count(), store.storage_options

    def put():
        uri = f"{bucket}/{command}-{next(numbers)}"
        for path in sorted(path for path in template.rglob("*") if path.is_file()):
            store.fs.pipe_file(f"{uri}/{path.relative_to(template)}", path.read_bytes())
        return uri

    def shown(uri):
        versions, *others, wrong = state(uri, options)
        return versions, *others, {text.replace(uri, "") for text in wrong}

    uri = put()
    before = shown(uri)
    store.faults.meet()
    right = run(two_versions, store_at(uri, options))
    number = store.faults.requests
    after = shown(uri)
    for at in chosen(number, {}, rng, 1):  # each takes seconds
        for kind in KINDS if TIER == "exhaust" else [rng.choice(KINDS)]:
            uri = put()
            there = store_at(uri, options)
            store.faults.meet(kind, at)
            given, error = outcome(run, two_versions, there)
            what = f"{command}: {kind} at request {at} of {number}: {error}"
            store.faults.meet()
            check(command, before, after, right, (given, error, shown(uri)), what)
            run(two_versions, store_at(uri, options))
            assert shown(uri) == after, what
