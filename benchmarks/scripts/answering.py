"""How a side of a comparison answers: a line of standard input names a task, a line of JSON answers it.

Needs nothing but Python, so that it runs in the environment of any peer.
"""

import gc
import json
import os
import resource
import sys
import time


def seconds_of(task):
    """How long a task takes; a generator function, which prepares what isn't to be timed up to its yield."""
    prepared = task()
    next(prepared)
    gc.collect()
    began = time.perf_counter()
    next(prepared, None)
    return time.perf_counter() - began


def serve(side):
    """Runs methods of `side` by name until standard input ends; answers their seconds, or what is wrong."""
    # Some loaders keep the memory of batches open for long, eight descriptors each.
    hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # workers may print too
    print(json.dumps("ready"), file=answers, flush=True)
    for line in sys.stdin:
        try:
            answer = seconds_of(getattr(side, line.strip()))
        except Exception as error:
            answer = f"{type(error).__name__}: {error}"
        print(json.dumps(answer), file=answers, flush=True)
    side.close()
