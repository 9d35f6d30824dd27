"""Trains a small model on the demo's dataset: where will the car be, from where it has been?

    logloom demo --to demo
    python examples/train_demo.py demo/dataset --seconds 60

The same dataset feeds logloom's Loader first, then torch's own DataLoader.
Needs torch (`pip install 'logloom[torch]'`), and neither Beam nor the logs.
"""

import argparse
import time

import numpy as np
import torch

import logloom as ll

PAST, FUTURE = 10, 10  # rows, of a tenth of a second each


def sample_of(window):
    """Past and future in the car's own system at the current row: metres ahead and to the left.

    Args:
        window: `ego.position` (PAST + 1 + FUTURE, 3) and `ego.rotation` (…, 3, 3).
    """
    moved = (window["ego.position"] - window["ego.position"][PAST]) @ window["ego.rotation"][PAST]
    path = moved[:, :2].astype(np.float32)
    return {"past": path[:PAST], "future": path[PAST + 1 :]}


def make_model():
    return torch.nn.Sequential(
        torch.nn.Flatten(),
        torch.nn.Linear(2 * PAST, 128),
        torch.nn.ReLU(),
        torch.nn.Linear(128, 2 * FUTURE),
        torch.nn.Unflatten(1, (FUTURE, 2)),
    )


def train(batches, seconds):
    """Trains a fresh model for a while.

    Returns:
        The mean distance to the true path, in metres, of the first and of the last tenth of the steps.
    """
    torch.manual_seed(0)
    torch.manual_seed(0)
    torch.set_num_threads(1)  # so small a model gains nothing from more, and the workers want the cores
    model = make_model()
    optimizer = torch.optim.Adam(model.parameters(), lr=3e-3)
    errors, until = [], time.monotonic() + seconds
    for batch in batches:
        path = model(batch["past"])
        distance = (path - batch["future"]).norm(dim=-1).mean()
        optimizer.zero_grad()
        distance.backward()
        optimizer.step()
        errors.append(float(distance.detach()))
        if time.monotonic() > until:
            break
    tenth = max(1, len(errors) // 10)
    print(f"  {len(errors)} steps, {np.mean(errors[:tenth]):.2f} m off at first, ", end="")
    print(f"{np.mean(errors[-tenth:]):.2f} m at last")
    return float(np.mean(errors[:tenth])), float(np.mean(errors[-tenth:]))


def endlessly(data_loader):
    while True:
        yield from data_loader


def main(arguments=None):
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("dataset", help="a root that logloom built, with ego.position and ego.rotation")
    parser.add_argument("--seconds", type=float, default=60.0, help="in all")
    parser.add_argument("--batch", type=int, default=32)
    parser.add_argument("--workers", type=int, default=2)
    chosen = parser.parse_args(arguments)

    rows = ll.open(chosen.dataset, columns=["ego.position", "ego.rotation"])
    windows = rows.window(range(-PAST, FUTURE + 1))
    # Small columns of all windows fit in memory: leave out those in which the car wasn't located (NaN).
    positions = windows.get_many(range(len(windows)), columns="ego.position")["ego.position"]
    samples = windows.take(np.isfinite(positions).all(axis=(1, 2))).map(sample_of)
    print(f"{len(rows)} rows, {len(samples)} of them with a whole past and future")

    print("through logloom's Loader")
    with ll.Loader(samples, batch=chosen.batch, workers=chosen.workers, seed=0) as loader:
        batches = torch.utils.data.DataLoader(ll.datasets.torch_dataset(loader), batch_size=None)
        first = train(batches, chosen.seconds / 2)

    print("through torch's DataLoader")
    batches = torch.utils.data.DataLoader(
        samples.torch(),
        batch_size=chosen.batch,
        shuffle=True,
        num_workers=chosen.workers,
        persistent_workers=chosen.workers > 0,
    )
    second = train(endlessly(batches), chosen.seconds / 2)
    return first, second


if __name__ == "__main__":
    main()
