"""What mmengine's datasets use of torch: two small classes; every other name is an empty class.

Run before mmengine is imported, where torch isn't installed: mmengine imports it in many places, its datasets
use these two.
"""

import importlib.abc
import importlib.machinery
import itertools
import sys
import types


class Dataset:
    """torch.utils.data.Dataset."""


class ConcatDataset(Dataset):
    """torch.utils.data.ConcatDataset, as far as mmengine's own builds on it."""

    def __init__(self, datasets):
        self.datasets = list(datasets)
        self.cumulative_sizes = list(itertools.accumulate(map(len, self.datasets)))

    def __len__(self):
        return self.cumulative_sizes[-1]


def _made(name):
    if name.startswith("__"):
        raise AttributeError(name)
    if name.startswith("is_") or name.endswith("_count"):  # is_available() is false, device_count() is 0
        return int
    return {"Dataset": Dataset, "ConcatDataset": ConcatDataset}.get(name) or _Empty(name, (), {})


class _Empty(type):
    def __getattr__(cls, name):
        return _made(name)


class _Module(types.ModuleType):
    __version__ = "2.0.0"

    def __getattr__(self, name):
        setattr(self, name, _made(name))
        return self.__dict__[name]


class _Finder(importlib.abc.MetaPathFinder, importlib.abc.Loader):
    def find_spec(self, name, path=None, target=None):
        if name.split(".")[0] == "torch":
            return importlib.machinery.ModuleSpec(name, self, is_package=True)
        return None

    def create_module(self, spec):
        return _Module(spec.name)

    def exec_module(self, module):
        pass


sys.meta_path.insert(0, _Finder())
