"""The loading pipeline for tar shards: each iterator, the loaders, and the code of its documentation."""

import bz2
import functools
import gzip
import http.server
import io
import json
import logging
import lzma
import multiprocessing
import os
import pathlib
import random
import re
import signal
import tarfile
import threading
import time

import braceexpand as peer
import numpy as np
import pytest
import webdataset
import zstandard
from hypothesis import given
from hypothesis import strategies as st
from PIL import Image

from logloom.datasets import tar as wd
from logloom.datasets.tar import (
    DatasetDescriptor,
    Rename,
    braceexpand,
    clsdecode,
    dataloader,
    debugloader,
    default_decoders,
    generic_open,
    imdecode,
    jsondecode,
    samplebatching,
    sampleiterator,
    sampleshuffle,
    sampletransforms,
    tasks,
)
from logloom.errors import DatasetError, LogloomError, UsageError
from logloom.io.formats.tar import TarReader

PACK = {"gzip": gzip.compress, "zstd": zstandard.compress, "bzip2": bz2.compress, "xz": lzma.compress}


def png(value, size=(4, 3)):
    buffer = io.BytesIO()
    Image.new("RGB", size, (value % 256, 0, 0)).save(buffer, "png")
    return buffer.getvalue()


def make(path, keys, **fields):
    """A shard with .cls, .png and .json of each key, and whatever else is asked for."""
    with tarfile.open(path, "w") as archive:
        for key in keys:
            members = {"cls": b"%d" % (key % 7), "png": png(key), "json": b'{"key": %d}' % key, **fields}
            for suffix, data in members.items():
                info = tarfile.TarInfo(f"{key:06d}.{suffix}")
                info.size = len(data)
                archive.addfile(info, io.BytesIO(data))
    return str(path)


@pytest.fixture
def shards(tmp_path):
    for n in range(4):
        make(tmp_path / f"train-{n:06d}.tar", range(n * 10, n * 10 + 10))
    return braceexpand(f"{tmp_path}/train-{{000000..000003}}.tar")


@pytest.mark.parametrize("processes", [False, True])
def test_every_sample_comes_once_from_any_number_of_tasks(shards, processes):
    for ntasks in (1, 2, 7):
        desc = DatasetDescriptor(shards, batchsize=3, ntasks=ntasks, csize=1, processes=processes)
        keys = [key for batch in dataloader(desc) for key in batch["__key__"]]
        assert sorted(keys) == [f"{n:06d}" for n in range(40)]
    assert list(dataloader(DatasetDescriptor([], processes=processes))) == []


def test_the_debugloader_counts_epochs_too_and_without_shuffling_all_are_alike(shards):
    desc = DatasetDescriptor(shards, shuffle=1000, batchsize=0)
    first, second = ([sample["__key__"] for sample in debugloader(desc)] for _ in range(2))
    assert first != second
    assert [s["__key__"] for s in debugloader(DatasetDescriptor(shards, batchsize=0, epoch=1))] == second
    plain = DatasetDescriptor(shards, shuffle=0, batchsize=0)
    for _ in range(2):
        assert [sample["__key__"] for sample in debugloader(plain)] == [f"{n:06d}" for n in range(40)]


def test_raw_and_decoded_samples_are_iterated_from_an_open_file(shards):
    with pathlib.Path(shards[0]).open("rb") as file:
        sample = next(sampleiterator(file))
    assert sample == {"__key__": "000000", ".cls": b"0", ".png": png(0), ".json": b'{"key": 0}'}
    for sample in sampletransforms(sampleiterator(generic_open(shards[1])), default_decoders):
        assert sample[".img"].shape == (3, 4, 3)
        break


def test_the_pipeline_of_the_documentation_runs_as_written(shards):
    def image_augmentation(image):
        return np.asarray(Image.fromarray(image).resize((256, 256))).transpose(2, 0, 1)

    augmenting = [(".img", image_augmentation), ("", lambda x: x)]
    collating = [
        (".cls", lambda data: np.array(data, int)),
        (".img", lambda images: np.stack(images, axis=-1)),
    ]
    desc = DatasetDescriptor(
        sources=shards,
        shuffle=1000,
        batchsize=32,
        decoding=default_decoders,
        augmenting=augmenting,
        collating=collating,
    )
    ch = debugloader(desc, desc.sources)
    sample = next(ch)
    assert sample[".img"].shape == (3, 256, 256, 32)

    desc.ntasks = 4
    before = wd.num_exceptions
    total = 0
    for sample in dataloader(desc):
        last_sample = sample
        total += len(sample["__key__"])
    assert total == 40
    assert set(last_sample) == {"__key__", ".img", ".cls"}
    assert last_sample[".cls"].dtype == int
    assert wd.num_exceptions == before


def test_the_iterators_of_the_documentation_compose(shards):
    desc = DatasetDescriptor(sources=shards, decoding=default_decoders, batchsize=4)
    stream = generic_open(shards[0])
    raw = sampleiterator(stream)
    shuffled = sampleshuffle(raw, desc.shuffle)
    decoded = sampletransforms(shuffled, desc.decoding)
    augmented = sampletransforms(decoded, desc.augmenting)
    batched = samplebatching(augmented, desc.batchsize)
    collated = sampletransforms(batched, desc.collating)
    batches = list(collated)
    assert [len(batch["__key__"]) for batch in batches] == [4, 4, 2]
    assert sorted(key for batch in batches for key in batch["__key__"]) == [f"{k:06d}" for k in range(10)]
    for batch in batches:
        fields = (batch[name] for name in ("__key__", ".cls", ".img", ".json"))
        for key, cls, image, meta in zip(*fields, strict=True):
            assert (cls, image[0, 0].tolist(), meta) == (int(key) % 7, [int(key), 0, 0], {"key": int(key)})


def test_the_stereo_samples_of_the_documentation_keep_their_double_suffixes(tmp_path):
    with tarfile.open(tmp_path / "stereo.tar", "w") as archive:
        for key in ("098953", "194432"):
            for suffix in ("left.jpg", "right.jpg", "depth.png16"):
                archive.addfile(tarfile.TarInfo(f"{key}.{suffix}"))
    first, second = sampleiterator(generic_open(tmp_path / "stereo.tar"))
    assert list(first) == ["__key__", ".left.jpg", ".right.jpg", ".depth.png16"]
    assert second["__key__"] == "194432"
    (renamed, _) = sampletransforms([first, second], [(Rename(r"\.jpg$", ".img"), len)])
    assert renamed == {"__key__": "098953", ".left.img": 0, ".right.img": 0}


def test_real_shards_give_what_webdataset_gives(shared_data):
    for name in ("sample.tgz", "mpdata.tar", "tendata.tar"):
        archive = shared_data / "webdataset" / name
        expected = list(webdataset.WebDataset(str(archive), shardshuffle=False))
        found = list(sampleiterator(generic_open(archive)))
        assert len(found) == len(expected)
        for ours, theirs in zip(found, expected, strict=True):
            assert ours["__key__"] == theirs["__key__"]
            fields = {f".{k}": v for k, v in theirs.items() if not k.startswith("__")}
            assert {k: v for k, v in ours.items() if k != "__key__"} == fields
    desc = DatasetDescriptor([shared_data / "webdataset/sample.tgz"], decoding=default_decoders, batchsize=0)
    images = [sample[".img"] for sample in debugloader(desc)]
    assert len(images) == 90
    assert {image.dtype for image in images} == {np.dtype("u1")}


@pytest.mark.parametrize("kind", ["gzip", "zstd", "bzip2", "xz", "plain", "memory"])
def test_compressed_and_remote_shards_open_alike(shards, tmp_path, kind):
    data = pathlib.Path(shards[0]).read_bytes()
    packed = PACK.get(kind, bytes)(data)
    if kind == "memory":
        import fsspec

        fsspec.filesystem("memory").pipe_file("/pipeline/a.tar", data)
        uri = "memory://pipeline/a.tar"
    else:
        uri = tmp_path / "a"
        uri.write_bytes(packed)
    expected = list(sampleiterator(generic_open(shards[0])))
    assert list(sampleiterator(generic_open(uri))) == expected
    if kind != "memory":
        assert list(sampleiterator(io.BytesIO(packed))) == expected


def test_shards_stream_from_a_web_server_and_small_ones_are_random_rows_also_without_ranges(shards):
    folder = pathlib.Path(shards[0]).parent
    handler = functools.partial(http.server.SimpleHTTPRequestHandler, directory=str(folder))
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        base = f"http://127.0.0.1:{server.server_address[1]}"
        uri = f"{base}/{pathlib.Path(shards[0]).name}"
        samples = list(sampleiterator(generic_open(uri)))
        batches = list(dataloader(DatasetDescriptor([uri], batchsize=0, shuffle=0)))
        assert TarReader(uri)[0].keys() == TarReader(shards[0])[0].keys()
        with pytest.raises(DatasetError, match="no such file"):
            generic_open(f"{base}/none.tar")
        server.shutdown()
    assert samples == list(sampleiterator(generic_open(shards[0])))
    assert len(batches) == len(samples)


@pytest.mark.parametrize("kind", ["gzip", "zstd", "bzip2", "xz", "plain"])
def test_a_cut_shard_is_an_error_unless_told_to_go_on(shards, tmp_path, kind):
    data = pathlib.Path(shards[0]).read_bytes()
    packed = PACK.get(kind, bytes)(data)
    cut = tmp_path / "cut.tar"
    cut.write_bytes(packed[: len(packed) // 2])
    with pytest.raises(DatasetError, match=r"cut\.tar"):
        list(sampleiterator(generic_open(cut)))
    whole = list(sampleiterator(generic_open(shards[0])))
    found = list(sampleiterator(generic_open(cut), allow_truncated=True))
    assert found == whole[: len(found)]
    assert kind in ("zstd", "bzip2", "xz") or found  # these pack so small a shard into one block
    with pytest.raises(DatasetError, match=r"cut\.tar"):
        list(dataloader(DatasetDescriptor([cut], batchsize=0)))
    again = list(dataloader(DatasetDescriptor([cut], batchsize=0, allow_truncated=True, shuffle=0)))
    assert again == found


def test_damaged_compression_is_an_error_that_names_the_file(shards, tmp_path):
    for pack in PACK.values():
        packed = bytearray(pack(pathlib.Path(shards[0]).read_bytes()))
        packed = packed[: len(packed) // 2] + bytes(40) + packed[len(packed) // 2 + 40 :]
        (tmp_path / "bad").write_bytes(packed)
        with pytest.raises(DatasetError, match="bad"):
            list(sampleiterator(generic_open(tmp_path / "bad")))


@given(data=st.data())
def test_streaming_and_random_access_agree_on_every_damage(data, tmp_path_factory):
    folder = tmp_path_factory.getbasetemp()
    good = pathlib.Path(make(folder / "good.tar", range(3))).read_bytes()
    at = data.draw(st.integers(0, len(good) - 1))
    changed = good[:at] + bytes([data.draw(st.integers(0, 255))]) + good[at + 1 :]
    bad = folder / "changed.tar"
    bad.write_bytes(data.draw(st.sampled_from([changed, changed[:at], good[at:], good[:at] + good])))
    outcomes = []
    for read in (lambda: list(sampleiterator(generic_open(bad))), lambda: list(rows_of(TarReader(bad)))):
        try:
            outcomes.append(read())
        except LogloomError:
            outcomes.append(None)
    assert outcomes[0] == outcomes[1]


def rows_of(reader):
    for row in range(len(reader)):
        yield {name if name == "__key__" else f".{name}": value for name, value in reader[row].items()}


def test_a_bomb_is_refused_before_it_is_unpacked(tmp_path):
    info = tarfile.TarInfo("a.bin")
    info.size = 1 << 40
    with gzip.open(tmp_path / "bomb.tgz", "wb") as file:
        file.write(info.tobuf(tarfile.GNU_FORMAT))
        for _ in range(50):
            file.write(bytes(1 << 20))
    with pytest.raises(DatasetError, match="limit"):
        next(sampleiterator(generic_open(tmp_path / "bomb.tgz")))


def test_commands_run_only_when_allowed(shards):
    with pytest.raises(UsageError, match="allow_pipe"):
        generic_open(f"pipe:cat {shards[0]}")
    with pytest.raises(UsageError, match="allow_pipe"):
        list(dataloader(DatasetDescriptor([f"pipe:cat {shards[0]}"])))
    piped = list(sampleiterator(generic_open(f"pipe:cat {shards[0]}", allow_pipe=True)))
    assert piped == list(sampleiterator(generic_open(shards[0])))


def test_a_command_that_fails_is_an_error(shards):
    with pytest.raises(Exception, match="status 3"):
        list(sampleiterator(generic_open(f"pipe:head -c 5000 {shards[0]}; exit 3", allow_pipe=True)))


def test_closing_a_pipe_early_ends_its_command(shards):
    stream = generic_open(f"pipe:while cat {shards[0]}; do true; done", allow_pipe=True)
    next(sampleiterator(stream))
    began = time.perf_counter()
    stream.close()
    assert time.perf_counter() - began < 300


@pytest.mark.parametrize(
    ("pattern", "names"),
    [
        ("a.tar", ["a.tar"]),
        ("x-{08..11}.tar", ["x-08.tar", "x-09.tar", "x-10.tar", "x-11.tar"]),
        ("{a,b{1..2}}c", ["ac", "b1c", "b2c"]),
        ("{3..1}", ["3", "2", "1"]),
        ("{1..9..4}", ["1", "5", "9"]),
        ("{c..a}", ["c", "b", "a"]),
        ("{a}{b,c}", ["{a}b", "{a}c"]),
        ("{}{x,}", ["{}x", "{}"]),
        ("{-1..1}", ["-1", "0", "1"]),
        ("a{b", ["a{b"]),
    ],
)
def test_braces_expand_as_in_a_shell(pattern, names):
    assert braceexpand(pattern) == names


@given(st.lists(st.tuples(st.integers(0, 30), st.integers(0, 30)), min_size=1, max_size=3))
def test_ranges_expand_as_the_braceexpand_package_does(ranges):
    pattern = "/".join(f"s-{{{a:03d}..{b:03d}}}" for a, b in ranges)
    assert braceexpand(pattern) == list(peer.braceexpand(pattern))


def test_braces_of_too_many_names_are_refused():
    with pytest.raises(UsageError, match="1000000"):
        braceexpand("{0..99999999999}")


def test_shuffling_keeps_every_sample_and_follows_its_seed():
    samples = [{"__key__": str(n)} for n in range(100)]
    for bufsize in (0, 1, 2, 10, 1000):
        shuffled = list(sampleshuffle(samples, bufsize, random.Random(1)))
        assert sorted(s["__key__"] for s in shuffled) == sorted(s["__key__"] for s in samples)
        assert shuffled == list(sampleshuffle(samples, bufsize, random.Random(1)))
        assert (shuffled == samples) == (bufsize < 2)


def test_the_first_rule_that_fits_wins_and_other_fields_are_dropped():
    sample = {"__key__": "a", ".left.jpg": 1, ".right.png": 2, ".cls": 3, ".txt": 4}
    rules = [
        (".left.jpg", lambda x: "left"),
        (Rename(re.compile(r"\.(jpg|png)$"), ".img"), lambda x: "image"),
        (re.compile(r"^\.c"), lambda x: "class"),
    ]
    (found,) = sampletransforms([sample], rules)
    assert found == {"__key__": "a", ".left.jpg": "left", ".right.img": "image", ".cls": "class"}
    (same,) = sampletransforms([sample], {"": lambda x: x})
    assert same == sample


def test_two_fields_that_get_one_name_are_an_error():
    with pytest.raises(DatasetError, match="img"):
        list(
            sampletransforms(
                [{"__key__": "a", ".jpg": 1, ".png": 2}], [(Rename(r"\.(jpg|png)$", ".img"), id)]
            )
        )


def test_batches_of_samples_with_other_fields_are_an_error():
    samples = [{"__key__": "a", ".x": 1}, {"__key__": "b", ".y": 2}, {"__key__": "c", ".x": 3}]
    with pytest.raises(DatasetError, match="sample b"):
        list(samplebatching(samples, 2))
    errors = []
    assert list(samplebatching(samples, 2, errors.append)) == [{"__key__": ["a", "c"], ".x": [1, 3]}]
    assert len(errors) == 1
    assert list(samplebatching(samples, 0)) == samples


def test_decoders_say_what_is_wrong():
    assert clsdecode(b" 12\n") == 12
    assert jsondecode(b'{"a": [1]}') == {"a": [1]}
    for decode, data in (
        (clsdecode, b"x"),
        (jsondecode, b"{"),
        (jsondecode, b"[" * 99999),
        (imdecode, b"\x89PNG"),
    ):
        with pytest.raises(DatasetError):
            decode(data)


def test_deep_gray_images_keep_their_bits():
    buffer = io.BytesIO()
    Image.fromarray(np.array([[0, 65535], [256, 7]], "<u2")).save(buffer, "png")
    assert imdecode(buffer.getvalue()).tolist() == [[0, 65535], [256, 7]]
    assert imdecode(png(9)).shape == (3, 4, 3)


@pytest.mark.parametrize("processes", [False, True])
def test_a_sample_that_raises_is_counted_logged_and_passed_over(tmp_path, shards, processes, caplog):
    bad = make(tmp_path / "bad.tar", range(90, 95), cls=b"cat")
    desc = DatasetDescriptor([*shards, bad], decoding=default_decoders, batchsize=0, processes=processes)
    before = wd.num_exceptions
    with caplog.at_level(logging.WARNING):
        keys = {sample["__key__"] for sample in dataloader(desc)}
    assert keys == {f"{n:06d}" for n in range(40)}
    assert wd.num_exceptions - before == 5
    assert isinstance(wd.last_exception, DatasetError)
    assert "cat" in str(wd.last_exception)
    assert "cat" in caplog.text
    with pytest.raises(DatasetError, match="cat"):
        list(debugloader(desc))


@pytest.mark.parametrize("processes", [False, True])
@pytest.mark.parametrize("stage", ["mapping", "augmenting", "collating"])
def test_errors_of_users_functions_are_counted_in_every_stage(shards, processes, stage):
    def fail(value):
        raise UnpicklableError("on purpose")

    given = {stage: fail if stage == "mapping" else [(".cls", fail)]}
    before = wd.num_exceptions
    assert list(dataloader(DatasetDescriptor(shards, batchsize=10, processes=processes, **given))) == []
    assert wd.num_exceptions > before
    assert "on purpose" in str(wd.last_exception)


class UnpicklableError(Exception):
    def __reduce__(self):
        raise TypeError("not me")


@pytest.mark.parametrize("processes", [False, True])
def test_a_shard_that_is_missing_is_raised(shards, tmp_path, processes):
    desc = DatasetDescriptor([*shards, str(tmp_path / "none.tar")], processes=processes)
    with pytest.raises(DatasetError, match=r"none\.tar"):
        list(dataloader(desc))


@pytest.mark.parametrize("processes", [False, True])
def test_leaving_a_loader_early_ends_its_tasks(shards, processes):
    before = threading.active_count()
    loader = dataloader(DatasetDescriptor(shards * 50, batchsize=1, csize=1, processes=processes))
    next(loader)
    began = time.perf_counter()
    loader.close()
    assert time.perf_counter() - began < 300
    assert threading.active_count() == before


def test_a_loader_process_that_is_killed_is_an_error_and_never_a_hang(shards):
    def die(sample):
        if sample["__key__"] == "000017":
            os.kill(os.getpid(), signal.SIGKILL)
        return sample

    with pytest.raises(Exception, match="exit code -9"):
        list(dataloader(DatasetDescriptor(shards, mapping=die, processes=True)))

    def leave(sample):
        os._exit(0)

    with pytest.raises(Exception, match="exit code 0"):
        list(dataloader(DatasetDescriptor(shards, mapping=leave, processes=True)))


def ignore_the_end():
    signal.signal(signal.SIGTERM, signal.SIG_IGN)  # as code that runs long in C does, whatever is asked


def test_a_loader_process_that_does_not_end_is_killed_and_named(shards, monkeypatch):
    monkeypatch.setattr(tasks, "_PATIENCE", 0.3)
    hangs = multiprocessing.get_context("fork").Event()

    def hang(sample):
        if sample["__key__"] != "000000":
            ignore_the_end()
            hangs.set()
            time.sleep(100)
        return sample

    desc = DatasetDescriptor(shards[:1], batchsize=1, processes=True, mapping=hang, shuffle=0)
    loader = dataloader(desc)
    next(loader)
    assert hangs.wait(30)
    children = multiprocessing.active_children()
    with pytest.warns(UserWarning, match=rf"loader process 0 \(process \d+\) at {shards[0]} .* was killed"):
        loader.close()
    assert len(children) == 1
    assert not children[0].is_alive()


def test_a_loader_process_that_goes_silent_is_named_and_ended(shards, monkeypatch):
    monkeypatch.setattr(tasks, "_PATIENCE", 0.3)

    def go_silent(sample):
        os.closerange(3, 100)
        ignore_the_end()
        time.sleep(100)

    desc = DatasetDescriptor(shards[:1], ntasks=1, processes=True, mapping=go_silent)
    with (
        pytest.warns(UserWarning, match="was killed"),
        pytest.raises(tasks.TaskError, match=r"loader process 0 \(process \d+\) at .* doesn't end"),
    ):
        list(dataloader(desc))
    for child in multiprocessing.active_children():
        child.join(60)  # it was killed; the kernel takes a moment where the machine is busy
    assert not multiprocessing.active_children()


def keys_of(loader):
    return [key for batch in loader for key in batch["__key__"]]


@pytest.mark.parametrize("processes", [False, True])
def test_each_epoch_has_an_order_of_its_own_that_follows_from_seed_and_epoch(shards, processes):
    def made(**more):
        return DatasetDescriptor(shards, shuffle=20, batchsize=3, ntasks=3, processes=processes, **more)

    desc = made(seed=4)
    orders = [keys_of(dataloader(desc)) for _ in range(3)]
    assert desc.epoch == 3
    assert all(sorted(order) == [f"{n:06d}" for n in range(40)] for order in orders)
    assert len({tuple(order) for order in orders}) == 3
    again = made(seed=4)
    assert [keys_of(dataloader(again)) for _ in range(3)] == orders
    assert keys_of(dataloader(made(seed=4, epoch=2))) == orders[2]
    assert keys_of(dataloader(made(seed=5))) != orders[0]
    desc.epoch = 1
    assert keys_of(dataloader(desc)) == orders[1]


def test_large_shuffles_reorder_shards_and_small_buffers_still_mix_them(shards):
    desc = DatasetDescriptor(shards, shuffle=2, batchsize=0, ntasks=1)
    firsts = {keys_of([{"__key__": [next(dataloader(desc))["__key__"]]}])[0][:5] for _ in range(30)}
    assert len(firsts) == 4  # each shard comes first in some epoch


@pytest.fixture
def with_bad_shards(shards, tmp_path):
    """Good shards among one that is missing, one that is cut and one whose classes are no numbers."""
    cut = tmp_path / "cut.tar"
    cut.write_bytes(pathlib.Path(make(cut, range(80, 90))).read_bytes()[:5000])
    bad = make(tmp_path / "bad.tar", range(90, 95), cls=b"cat")
    return [shards[0], str(tmp_path / "none.tar"), shards[1], str(cut), bad, *shards[2:]]


WHOLE = {f"{n:06d}" for n in range(40)}


@pytest.mark.parametrize("load", [debugloader, dataloader])
@pytest.mark.parametrize(
    "handler", ["ignore", "ignore_and_continue", wd.ignore_and_continue, webdataset.ignore_and_continue]
)
def test_bad_shards_and_samples_are_passed_over_where_the_handler_says_so(with_bad_shards, load, handler):
    before = wd.num_exceptions
    desc = DatasetDescriptor(with_bad_shards, decoding=default_decoders, batchsize=0, handler=handler)
    found = {sample["__key__"] for sample in load(desc)}
    assert found >= WHOLE
    assert all(key.startswith("00008") for key in found - WHOLE)  # what the cut shard has before its end
    assert wd.num_exceptions - before == 2 + 5


def test_bad_shards_are_passed_over_by_processes_too(with_bad_shards):
    before = wd.num_exceptions
    desc = DatasetDescriptor(
        with_bad_shards, decoding=default_decoders, batchsize=0, handler="ignore", processes=True
    )
    assert {sample["__key__"] for sample in dataloader(desc)} >= WHOLE
    assert wd.num_exceptions - before == 2 + 5


def test_a_handler_that_warns_names_what_was_passed_over(with_bad_shards):
    desc = DatasetDescriptor(with_bad_shards, decoding=default_decoders, batchsize=0, handler="warn")
    with pytest.warns(UserWarning, match="passed over") as said:
        assert {sample["__key__"] for sample in dataloader(desc)} >= WHOLE
    text = "\n".join(str(warning.message) for warning in said)
    assert "none.tar: there is no such file" in text
    assert "cut.tar" in text
    assert "cat" in text


@pytest.mark.parametrize("handler", ["raise", wd.reraise_exception, webdataset.reraise_exception])
def test_a_handler_that_raises_makes_every_error_end_the_loader(shards, tmp_path, handler):
    bad = make(tmp_path / "bad.tar", range(90, 95), cls=b"cat")
    desc = DatasetDescriptor([*shards, bad], decoding=default_decoders, batchsize=0, handler=handler)
    with pytest.raises(DatasetError, match="cat"):
        list(dataloader(desc))


def test_a_handler_that_says_stop_ends_the_samples_without_an_error(shards, tmp_path):
    desc = DatasetDescriptor(
        [shards[0], str(tmp_path / "none.tar"), shards[1]], shuffle=0, batchsize=0, handler="ignore_and_stop"
    )
    assert [sample["__key__"] for sample in debugloader(desc)] == [f"{n:06d}" for n in range(10)]
    stopped = sampletransforms(
        [{"__key__": "a", ".cls": b"1"}, {"__key__": "b", ".cls": b"x"}], [(".cls", int)]
    )
    assert next(stopped)[".cls"] == 1
    with pytest.raises(ValueError, match="x"):
        next(stopped)


def test_what_is_passed_over_is_what_webdataset_passes_over(with_bad_shards, tmp_path):
    urls = [url for url in with_bad_shards if "cut" not in url]  # which webdataset takes for a whole one

    def decode(sample):
        return {"__key__": sample["__key__"], "cls": int(sample["cls"])}

    theirs = webdataset.WebDataset(urls, shardshuffle=False, handler=webdataset.ignore_and_continue).map(
        decode, handler=webdataset.ignore_and_continue
    )
    ours = DatasetDescriptor(
        urls, decoding=[(".cls", int)], shuffle=0, batchsize=0, handler=webdataset.ignore_and_continue
    )
    assert [(s["__key__"], s[".cls"]) for s in debugloader(ours)] == [
        (s["__key__"], s["cls"]) for s in theirs
    ]


def test_settings_that_make_no_sense_are_refused():
    with pytest.raises(UsageError, match="handler='log': raise, warn, ignore"):
        DatasetDescriptor(["a"], handler="log")
    for wrong in ({"batchsize": -1}, {"shuffle": -1}, {"csize": 0}, {"ntasks": 0}):
        with pytest.raises(UsageError):
            DatasetDescriptor(["a"], **wrong)


def test_the_defaults_are_those_of_the_documentation():
    desc = DatasetDescriptor()
    assert (desc.shuffle, desc.batchsize, desc.csize, desc.ntasks) == (1000, 16, 100, 4)
    assert (desc.verbose, desc.debug) == (False, False)
    sample = {"__key__": "a", ".x": json}
    for rules in (desc.decoding, desc.augmenting, desc.collating):
        assert list(sampletransforms([sample], rules)) == [sample]
    assert desc.mapping(sample) is sample
