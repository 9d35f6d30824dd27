"""The steps of `ReadFrom` and `WriteTo` without a runner: quicker, and they can be repeated and fail."""

import pickle

from apache_beam.io.restriction_trackers import OffsetRestrictionTracker
from apache_beam.runners.sdf_utils import RestrictionTrackerView, ThreadsafeRestrictionTracker

from logloom.io.beam import read as reading


def read_here(transform):
    """What a pipeline would read, by its steps alone, which is quicker; in row order."""
    reader, blocks = pickle.loads(pickle.dumps(transform._reader)), []
    step = reading._ReadShare(reader)
    for place in transform._named_places():
        for dataset in reader.datasets(place):
            for share in pickle.loads(pickle.dumps([*reader.shares(dataset)])):
                for part in step.split(share, step.initial_restriction(share)):
                    blocks += step.process(share, tracked(part)[0])
    return sorted(blocks, key=lambda block: (block.log_id, int(block.timestamp[0])))


def tracked(restriction):
    tracker = ThreadsafeRestrictionTracker(OffsetRestrictionTracker(restriction))
    return RestrictionTrackerView(tracker), tracker


def finish(written, blocks, repeat=None):
    """What a runner does with a `WriteTo`; `repeat`: a random.Random that has steps done twice."""
    dataset = written._dataset

    def do(step, *arguments):
        if repeat is not None and repeat.random() < 0.4:
            step(*arguments)
        return step(*arguments)

    pieces = {}
    for block in blocks:
        for log_id, entry in do(lambda block=block: list(dataset.stage_block(block))):
            pieces.setdefault(log_id, []).append(entry)
    planned = [unit for log in pieces.items() for unit in dataset.plan_units(*log)]
    units = [made for unit in planned for made in do(lambda unit=unit: list(dataset.make_unit(unit)))]
    files = [
        made for task in dataset.tasks(units) for made in do(lambda task=task: list(dataset.write_file(task)))
    ]
    mark = do(dataset.claim, units, files)
    for moves in do(lambda: list(dataset.moves(mark))):
        do(dataset.place.move, moves)
    return do(dataset.finish, mark, [])
