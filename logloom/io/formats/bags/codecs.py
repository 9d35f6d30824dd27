"""Encoding and decoding of values in granular's byte formats.

Here: `encoders` and `decoders` by type name, and the quicker forms of `array` that datasets use.
Elsewhere: files of records (logloom.io.formats.bags.bag), the type of each column
(logloom.io.formats.bags.columns).

array: msgpack of [dtype, shape, data]; tree: msgpack in which ["_", dtype, shape, data] is an array; int:
two's complement, little-endian, as short as possible. Decoded arrays are read-only.
"""

from __future__ import annotations

import fractions
import functools
import io
import itertools
import math
import operator
import re
from collections.abc import Callable, Sequence
from typing import Any

import msgpack
import numpy as np

from logloom.blocks import Array
from logloom.errors import UsageError
from logloom.io.video.encoders import open_encoder

Encoder = Callable[[Any], bytes]
Decoder = Callable[[bytes], Any]

_DTYPE = re.compile(r"[<>|=][?a-zA-Z][0-9]*(\[[^\]]*\])?")
MAX_INT_BYTES = 16  # what granular reads
_COPIED = 4096  # records of a range below this size are copied out of it


def encode_bytes(value: bytes | bytearray | memoryview) -> bytes:
    """Bytes as they are."""
    if not isinstance(value, bytes | bytearray | memoryview):
        raise UsageError(f"expected bytes, got {type(value).__name__}")
    return bytes(value)


def encode_utf8(value: str) -> bytes:
    return value.encode("utf-8")


def decode_utf8(record: bytes) -> str:
    return str(record, "utf-8")


def encode_msgpack(value: Any) -> bytes:
    packed: bytes = msgpack.packb(value)
    return packed


def decode_msgpack(record: bytes) -> Any:
    return msgpack.unpackb(record, strict_map_key=False)


def encode_int(value: int) -> bytes:
    """Encode an integer of at most 16 bytes in as few as two's complement needs, at least one."""
    number = operator.index(value)
    size = (number + (number < 0)).bit_length() // 8 + 1
    if size > MAX_INT_BYTES:
        raise UsageError(f"{number}: an int has at most {MAX_INT_BYTES} bytes; use msgpack or bytes")
    return number.to_bytes(size, "little", signed=True)


def decode_int(record: bytes) -> int:
    """Decode an integer; no bytes are 0."""
    if len(record) > MAX_INT_BYTES:
        raise ValueError(f"an int of {len(record)} bytes, {MAX_INT_BYTES} are the most")
    return int.from_bytes(record, "little", signed=True)


def _encode_fixed(value: int, signed: bool) -> bytes:
    return operator.index(value).to_bytes(8, "little", signed=signed)


class FixedDecoder:
    """Decodes integers of 8 bytes."""

    def __init__(self, signed: bool):
        self._signed = signed
        self.dtype = np.dtype("<i8" if signed else "<u8")

    def __call__(self, record: bytes) -> int:
        if len(record) != 8:
            raise ValueError(f"{len(record)} bytes, 8 were expected")
        return int.from_bytes(record, "little", signed=self._signed)

    def many(self, data: bytes, limits: Sequence[int]) -> list[int]:
        """Decode the integers of concatenated records, at `limits`."""
        if limits[1:] == list(range(8, len(data) + 1, 8)):
            numbers: list[int] = np.frombuffer(data, self.dtype).tolist()
            return numbers
        return [self(data[start:stop]) for start, stop in itertools.pairwise(limits)]


def dtype_of(text: Any) -> np.dtype[Any]:
    """Parse a plain dtype.

    Raises:
        ValueError: it is structured, of objects, or invalid.
    """
    if not isinstance(text, str) or not _DTYPE.fullmatch(text):
        raise ValueError(f"{str(text)[:40]!r} is no plain dtype")
    try:
        dtype = np.dtype(text)
    except TypeError as error:
        raise ValueError(f"{text!r} is no dtype") from error
    if dtype.hasobject or dtype.itemsize == 0:
        raise ValueError(f"{text!r} contains no plain values")
    return dtype


@functools.lru_cache(maxsize=4096)
def array_head(dtype: np.dtype[Any], shape: tuple[int, ...]) -> bytes:
    """The head of an array record, before its data.

    Raises:
        UsageError: arrays of this dtype or size have no such record.
    """
    if dtype.names is not None:
        raise UsageError(
            "`array` would lose the fields of a structured array; use `tree` and a dict of fields"
        )
    try:
        dtype_of(dtype.str)
    except ValueError as error:
        raise UsageError(f"`array` can't store {dtype}: {error}") from error
    size = math.prod(shape) * dtype.itemsize
    if size >= 1 << 32:
        raise UsageError(f"`array` stores less than 4 GiB, this one has {size} bytes; cut it into a sequence")
    packer = msgpack.Packer()
    # Headers of bin objects: one, two or four bytes of length, the fewest that hold it.
    bits = 8 if size < 1 << 8 else 16 if size < 1 << 16 else 32
    kind = {8: b"\xc4", 16: b"\xc5", 32: b"\xc6"}[bits]
    head: bytes = packer.pack_array_header(3) + packer.pack(dtype.str) + packer.pack(shape)
    return head + kind + size.to_bytes(bits // 8, "big")


def array_parts(value: Any) -> tuple[bytes, memoryview]:
    """Head and data of an array record, the data without a copy if it is in C order."""
    values = np.asarray(value)
    head = array_head(values.dtype, values.shape)
    return head, np.ascontiguousarray(values).reshape(-1).view(np.uint8).data


def encode_array(value: Any) -> bytes:
    """A numpy array or number of any plain dtype."""
    return b"".join(array_parts(value))


class ArrayDecoder:
    """Decodes array records; consecutive records of the same dtype and shape are nearly free.

    The arrays are read-only views of the record if its data is aligned, else of a copy.
    """

    def __init__(self) -> None:
        self._last: tuple[bytes, int, np.dtype[Any], tuple[int, ...], bool] = (
            b"",
            -1,
            np.dtype("u1"),
            (),
            True,
        )

    def __call__(self, record: bytes) -> Array:
        head, size, dtype, shape, aligned = self._last
        if len(record) != size or record[: len(head)] != head:
            head, size, dtype, shape, aligned = self._last = _parse_head(record)
        if aligned:
            return np.ndarray(shape, dtype, record, len(head))
        return np.ndarray(shape, dtype, record[len(head) :])

    def many(self, data: bytes, limits: Sequence[int]) -> list[Array]:
        """Decode the arrays of concatenated records; large ones are views of `data`.

        Args:
            limits: (n + 1,) the start of each in `data`, and the end of the last.
        """
        head, size, dtype, shape, _ = self._last
        if size < _COPIED and shape and limits[1:] == list(range(size, len(data) + 1, size)):
            rows = np.frombuffer(data, np.uint8).reshape(-1, size)
            if rows[:, : len(head)].tobytes() == head * len(rows):
                body = rows[:, len(head) :].tobytes()
                return list(np.ndarray((len(rows), *shape), dtype, body))
        found: list[Array] = []
        for start, stop in itertools.pairwise(limits):
            at = start + len(head)
            if size != stop - start or data[start:at] != head:
                found.append(self(data[start:stop]))
                head, size, dtype, shape, _ = self._last
            elif size < _COPIED or at % dtype.alignment:
                found.append(np.ndarray(shape, dtype, data[at:stop]))
            else:
                found.append(np.ndarray(shape, dtype, data, at))
        return found

    def __reduce__(self) -> tuple[Any, ...]:
        return (ArrayDecoder, ())


def _parse_head(record: bytes) -> tuple[bytes, int, np.dtype[Any], tuple[int, ...], bool]:
    """Parse the head of an array record: its bytes, the record's size, dtype and shape.

    Raises:
        ValueError: it is no array record.
    """
    parts = msgpack.unpackb(record)
    if not isinstance(parts, list) or len(parts) != 3:
        raise ValueError("no array record")
    dtype, shape = _checked(*parts)
    offset = len(record) - len(parts[2])
    # A head that was not packed the shortest way still ends where the data begins.
    aligned = offset % dtype.alignment == 0
    return bytes(record[:offset]), len(record), dtype, shape, aligned


def _checked(dtype: Any, shape: Any, data: Any) -> tuple[np.dtype[Any], tuple[int, ...]]:
    found = dtype_of(dtype)
    sizes = shape if isinstance(shape, list) else None
    if sizes is None or not all(type(n) is int and n >= 0 for n in sizes) or len(sizes) > 32:
        raise ValueError(f"{str(shape)[:40]} is no shape")
    if not isinstance(data, bytes) or len(data) != math.prod(sizes) * found.itemsize:
        raise ValueError(f"not the data of a {found} array of shape {sizes}")
    return found, tuple(sizes)


decode_array = ArrayDecoder()


def encode_tree(value: Any) -> bytes:
    """Lists, dicts, plain values and numpy arrays, nested; a structured array is a dict of its fields."""
    packed: bytes = msgpack.packb(_pack_tree(value))
    return packed


def _pack_tree(value: Any) -> Any:
    if isinstance(value, list | tuple):
        return [_pack_tree(item) for item in value]
    if isinstance(value, dict):
        return {key: _pack_tree(item) for key, item in value.items()}
    if isinstance(value, np.ndarray | np.generic):
        array = np.asarray(value)  # of a structured row: its fields are arrays then, and keep their dtype
        if array.dtype.names is not None:
            return {name: _pack_tree(array[name]) for name in array.dtype.names}
        dtype_of(array.dtype.str)
        data = np.ascontiguousarray(array).reshape(-1).view(np.uint8).data
        return ["_", array.dtype.str, list(array.shape), data]
    return value


def decode_tree(record: bytes) -> Any:
    return _unpack_tree(msgpack.unpackb(record, strict_map_key=False))


def _unpack_tree(value: Any) -> Any:
    if isinstance(value, list):
        if len(value) == 4 and value[0] == "_" and isinstance(value[3], bytes):
            dtype, shape = _checked(*value[1:])
            return np.frombuffer(value[3], dtype).reshape(shape)
        return [_unpack_tree(item) for item in value]
    if isinstance(value, dict):
        return {key: _unpack_tree(item) for key, item in value.items()}
    return value


def _encode_image(value: Any, form: str) -> bytes:
    """Encode an array (height, width[, channels]) of uint8 as an image; bytes are encoded already."""
    if isinstance(value, bytes | bytearray | memoryview):
        return bytes(value)
    from PIL import Image

    stream = io.BytesIO()
    quality = {"quality": 95} if form == "JPEG" else {}
    Image.fromarray(np.asarray(value)).save(stream, format=form, **quality)
    return stream.getvalue()


def decode_image(record: bytes) -> Array:
    """Decode an image to (height, width[, channels]).

    Raises:
        ValueError: no image, a damaged one, or one of an absurd size.
    """
    from PIL import Image

    try:
        with Image.open(io.BytesIO(record)) as image:
            return np.asarray(image)
    except (OSError, SyntaxError, Image.DecompressionBombError) as error:
        raise ValueError(f"no image that can be decoded: {error}") from error


def encode_video(value: Any, fps: float = 20, form: str = "mp4", codec: str = "h264") -> bytes:
    """(frames, height, width, 3) uint8 as a video file; needs the `video` extra."""
    av = _pyav()
    frames = np.asarray(value)
    if frames.ndim != 4 or frames.shape[3] != 3 or frames.dtype != np.uint8:
        raise UsageError(f"a video is uint8 (frames, height, width, 3), got {frames.dtype} {frames.shape}")
    target = io.BytesIO()
    with av.open(target, mode="w", format=form) as output:
        stream = output.add_stream(codec, rate=fractions.Fraction(fps).limit_denominator(1001))
        stream.height, stream.width = frames.shape[1:3]
        stream.pix_fmt = "yuv420p"
        open_encoder(stream.codec_context)
        for number, frame in enumerate(frames):
            picture = av.VideoFrame.from_ndarray(frame, format="rgb24")
            picture.pts = number
            output.mux(stream.encode(picture))
        output.mux(stream.encode(None))
    return target.getvalue()


def decode_video(record: bytes) -> Array:
    """(frames, height, width, 3) uint8; needs the `video` extra.

    Raises:
        ValueError: no video that can be decoded.
    """
    av = _pyav()
    try:
        with av.open(io.BytesIO(record)) as container:
            return np.stack([frame.to_ndarray(format="rgb24") for frame in container.decode(video=0)])
    except (av.error.FFmpegError, IndexError) as error:
        raise ValueError(f"no video that can be decoded: {error}") from error


def _pyav() -> Any:
    try:
        import av  # type: ignore[import-not-found,unused-ignore]
    except ImportError as error:
        raise UsageError("videos need PyAV: pip install 'logloom[video]'") from error
    return av


encoders: dict[str, Encoder] = {
    "bytes": encode_bytes,
    "utf8": encode_utf8,
    "msgpack": encode_msgpack,
    "int": encode_int,
    "i64": functools.partial(_encode_fixed, signed=True),
    "u64": functools.partial(_encode_fixed, signed=False),
    "array": encode_array,
    "tree": encode_tree,
    "jpg": functools.partial(_encode_image, form="JPEG"),
    "png": functools.partial(_encode_image, form="PNG"),
    "mp4": functools.partial(encode_video, form="mp4", codec="h264"),
    "webm": functools.partial(encode_video, form="webm", codec="vp9"),
}
"""By type name, what makes bytes of a value."""

decoders: dict[str, Decoder] = {
    "bytes": bytes,
    "utf8": decode_utf8,
    "msgpack": decode_msgpack,
    "int": decode_int,
    "i64": FixedDecoder(signed=True),
    "u64": FixedDecoder(signed=False),
    "array": decode_array,
    "tree": decode_tree,
    "jpg": decode_image,
    "png": decode_image,
    "mp4": decode_video,
    "webm": decode_video,
}
"""By type name, what makes a value of bytes."""
