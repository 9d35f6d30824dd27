"""One side of benchmarks.openmmlab, in a process of its own: prints what it measured as JSON.

python openmmlab_side.py logloom|mmengine FILE time COUNT       CPU seconds of full_init and of COUNT infos
python openmmlab_side.py logloom|mmengine FILE memory WORKERS   bytes of it and its workers together (PSS)
"""

import gc
import json
import multiprocessing
import os
import pathlib
import random
import sys
import time

REPOSITORY = pathlib.Path(__file__).parents[2]


def base_dataset(who):
    if who == "mmengine":
        # mmengine is Python alone, so that both sides run on one interpreter.
        sys.path += map(str, (REPOSITORY / ".venv-mmengine").glob("lib/python*/site-packages"))
        exec((REPOSITORY / "tests" / "interop" / "torch_stub.py").read_text(), {"__name__": "torch_stub"})
        from mmengine.dataset import BaseDataset
    else:
        from logloom.datasets.openmmlab import BaseDataset
    return BaseDataset


def timed(dataset, count):
    began = time.process_time()
    dataset.full_init()
    initialised = time.process_time() - began
    places = random.Random(0).choices(range(len(dataset)), k=count)
    began = time.process_time()
    for place in places:
        dataset.get_data_info(place)
    return {"full_init": initialised, "get_data_info": time.process_time() - began}


def read_all(dataset, ready, done):
    for place in range(len(dataset)):
        dataset.get_data_info(place)
    ready.release()
    done.wait()


def pss(pid):
    for line in pathlib.Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines():
        if line.startswith("Pss:"):
            return 1024 * int(line.split()[1])
    raise RuntimeError(f"no PSS of {pid}")


def memory(dataset, workers):
    dataset.full_init()
    gc.collect()
    context = multiprocessing.get_context("fork")
    ready, done = context.Semaphore(0), context.Event()
    processes = [context.Process(target=read_all, args=(dataset, ready, done)) for _ in range(workers)]
    for process in processes:
        process.start()
    for _ in processes:
        ready.acquire()
    total = sum(pss(pid) for pid in [os.getpid(), *(process.pid for process in processes)])
    done.set()
    for process in processes:
        process.join()
    return {"pss": total}


def main():
    who, file, what, count = sys.argv[1:]
    dataset = base_dataset(who)(file, data_prefix={"img_path": "train/"}, lazy_init=True)
    print(json.dumps({"time": timed, "memory": memory}[what](dataset, int(count))))


if __name__ == "__main__":
    main()
