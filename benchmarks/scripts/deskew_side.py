"""KISS-ICP as a side of `benchmarks.deskew`: moves one cloud again and again, by one thread.

    python deskew_side.py CLOUD

CLOUD is an .npz of points (n, 3), times (n,) from 0 to 1 and motion (4, 4). Needs what `make interop` puts
in .venv-kiss.
"""

import sys

import numpy as np
from answering import serve
from kiss_icp.pybind import kiss_icp_pybind


class KissSide:
    def __init__(self, path):
        cloud = np.load(path)
        self.points, self.times, self.motion = (cloud[name] for name in ("points", "times", "motion"))
        self.preprocessor = kiss_icp_pybind._Preprocessor(1e9, 0.0, True, 1)

    def deskew(self):
        yield
        cloud = kiss_icp_pybind._Vector3dVector(self.points)
        np.asarray(self.preprocessor._preprocess(cloud, self.times, self.motion))

    def close(self):
        pass


serve(KissSide(sys.argv[1]))
