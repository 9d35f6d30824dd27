"""One side of the comparison of tar shards: random rows by wids, raw and decoded.

`python wids_side.py wids FOLDER ROWS`; see answering.py.
"""

import io
import json
import os
import sys

import numpy as np
import wids
from answering import serve


def decode(name, data):
    if name.endswith(".npy"):
        return np.load(io.BytesIO(data))
    return json.loads(data) if name.endswith(".json") else data


class Side:
    def __init__(self, folder, rows):
        self.shard, self.rows = os.path.join(folder, "ours.tar"), rows

    def random_rows(self):
        return self._rows(lambda name, data: data)

    def decoded_rows(self):
        return self._rows(decode)

    def _rows(self, decoder):
        order = np.random.default_rng(1).permutation(self.rows).tolist()
        shards = [{"url": self.shard, "nsamples": self.rows, "filesize": os.path.getsize(self.shard)}]
        dataset = wids.ShardListDataset(shards, transformations=[], keep=True)
        dataset[0]  # opens and indexes the shard
        yield
        for n in order:
            row = {}
            for name, value in dataset[n].items():  # members are open files until they are read
                row[name] = decoder(name, value.read()) if hasattr(value, "read") else value

    def close(self):
        pass


if __name__ == "__main__":
    serve(Side(sys.argv[2], int(sys.argv[3])))
