"""Importing of Beam what a local run needs, and no more."""

import json
import subprocess
import sys

import pytest

LEAN = """\
import gc, json, sys
from logloom.extras import beam_needed, without_collection
from logloom.runners.local_imports import LEFT_OUT, local_imports
with without_collection(), local_imports() as asked, beam_needed():
    import logloom.pipelines.build
    import apache_beam.runners.worker.sdk_worker_main
clients = {"boto3", "botocore", "google.cloud.storage", "google.auth", "pandas", "pymongo"}
loaded = sorted(clients & set(sys.modules))
collects = gc.isenabled()
import apache_beam.io.gcp.bigquery, apache_beam.io.gcp.gcsfilesystem, pandas
print(json.dumps([sorted(asked), sorted(LEFT_OUT), loaded, collects]))
"""
OTHERS = """\
import sys, threading
from logloom.runners.local_imports import _LeaveOut, local_imports
def user():
    import pandas
    pandas.DataFrame()
try:
    with local_imports():
        try:
            user()
        except ModuleNotFoundError as error:
            print(error)
        other = threading.Thread(target=user)
        other.start()
        other.join()
        user()
        raise ZeroDivisionError
except ZeroDivisionError:
    assert not [hook for hook in sys.meta_path if isinstance(hook, _LeaveOut)]
"""


@pytest.fixture(scope="module")
def said():
    done = subprocess.run([sys.executable, "-c", LEAN], check=True, capture_output=True, text=True)
    assert done.stderr == ""
    return json.loads(done.stdout)


def test_beam_asks_for_all_that_is_left_out_so_the_list_fits_this_version(said):
    asked, left_out, *_ = said
    assert asked == left_out


def test_no_client_of_a_cloud_is_imported_and_no_pandas(said):
    assert said[2] == []


def test_garbage_is_collected_again_afterwards(said):
    assert said[3]


def test_other_threads_import_what_they_like_and_an_error_leaves_nothing_behind():
    done = subprocess.run([sys.executable, "-c", OTHERS], check=True, capture_output=True, text=True)
    assert (done.stdout, done.stderr) == ("pandas is left out: a local run needs none\n", "")
