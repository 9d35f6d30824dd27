"""Parsing packets of H.265: keyframes, missing references, sizes.

Here: video, sequence and picture parameter sets, slice headers as far as they name references; `H265`.
Elsewhere: decoding (frames).
Source: ITU-T H.265 (08/2021), 7.3.2 (parameter sets), 7.3.6 (slice headers), 7.3.7 and 7.4.8 (sets of
reference pictures), 8.3.1 (order of pictures).
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from logloom.io.video.bits import (
    CLOSED,
    LEADING,
    LOST,
    MAX_SET_BYTES,
    NO_KEY,
    OPEN,
    SLICE_BYTES,
    Bits,
    Look,
    SetReader,
    checked_size,
    nal_units,
    order_behind,
    unescaped,
)
from logloom.values import dataclass

_VPS, _SPS, _PPS = 32, 33, 34
_FIRST_KEY, _LAST_KEY, _IDR = 16, 23, (19, 20)
_BROKEN_LINKS = (16, 17, 18)  # whose leading pictures can't be shown
_LEADING_KINDS = (6, 7, 8, 9)  # RADL, RASL
_NEEDY_LEADING = (8, 9)  # RASL
_LAST_SLICE = 31
_LAST_SUB_LAYER = 15  # up to it, even numbers are of pictures that no others of their layer refer to


class Reference(NamedTuple):
    """A picture that another one's header refers to, by its distance in display order."""

    distance: int
    is_used: bool  # by this picture; else by later ones only


@dataclass(frozen=True)
class H265Sequence:
    """The fields of a sequence parameter set that slice headers depend on; and the size of pictures."""

    id: int
    width: int
    height: int
    has_planes: bool
    order_bits: int
    sets: tuple[tuple[Reference, ...], ...]
    has_long_term: bool
    long_term: tuple[tuple[int, bool], ...]  # lower bits of the order, and whether it is used


@dataclass(frozen=True)
class PictureParameters:
    sequence: int
    tells_output: bool
    extra_bits: int


def sequence_parameters(data: bytes) -> H265Sequence:
    """Parse a sequence parameter set (without its two first bytes).

    Raises:
        ValueError: it is truncated or invalid.
    """
    bits = Bits(unescaped(data[:MAX_SET_BYTES]))
    bits.read(4)
    layers = bits.read(3)
    bits.flag()
    _skip_profile(bits, layers)
    number, chroma = bits.ue(15), bits.ue(3)
    has_planes = chroma == 3 and bits.flag()
    width, height = bits.ue(), bits.ue()
    if bits.flag():
        across, down = (2 if chroma in (1, 2) else 1), (2 if chroma == 1 else 1)
        width -= across * (bits.ue() + bits.ue())
        height -= down * (bits.ue() + bits.ue())
    checked_size(width, height)
    bits.ue(8), bits.ue(8)
    order_bits = bits.ue(12) + 4
    for _ in range(layers + 1 if bits.flag() else 1):
        bits.ue(), bits.ue(), bits.ue()
    for _ in range(6):
        bits.ue()
    if bits.flag() and bits.flag():
        _skip_scaling(bits)
    bits.flag(), bits.flag()
    if bits.flag():
        bits.read(8), bits.ue(), bits.ue(), bits.flag()
    sets: list[tuple[Reference, ...]] = []
    count = bits.ue(64)
    for i in range(count):
        sets.append(_reference_set(bits, i, count, sets))
    has_long_term, long_term = bits.flag(), []
    if has_long_term:
        for _ in range(bits.ue(32)):
            long_term.append((bits.read(order_bits), bits.flag()))
    return H265Sequence(
        number, width, height, has_planes, order_bits, tuple(sets), has_long_term, tuple(long_term)
    )


def _skip_profile(bits: Bits, layers: int) -> None:
    bits.read(96)
    present = [(bits.flag(), bits.flag()) for _ in range(layers)]
    if layers:
        bits.read(2 * (8 - layers))
    for profile, level in present:
        bits.read(88 * profile + 8 * level)


def _skip_scaling(bits: Bits) -> None:
    for size in range(4):
        for _ in range(0, 6, 3 if size == 3 else 1):
            if not bits.flag():
                bits.ue()
                continue
            if size > 1:
                bits.se()
            for _ in range(min(64, 1 << (4 + 2 * size))):
                bits.se()


def _reference_set(
    bits: Bits, index: int, count: int, before: Sequence[tuple[Reference, ...]]
) -> tuple[Reference, ...]:
    """Parse a short-term set of reference pictures (7.3.7), those shown before the picture first, nearest
    first.
    """
    if index and bits.flag():
        return _predicted_set(bits, index, count, before)
    earlier, later = bits.ue(16), bits.ue(16)
    found = []
    for sign, number in ((-1, earlier), (1, later)):
        distance = 0
        for _ in range(number):
            distance += sign * (bits.ue(1 << 15) + 1)
            found.append(Reference(distance, bits.flag()))
    return tuple(found)


def _predicted_set(
    bits: Bits, index: int, count: int, before: Sequence[tuple[Reference, ...]]
) -> tuple[Reference, ...]:
    """Parse a set given by its difference from another one (7.4.8)."""
    back = bits.ue(index - 1) + 1 if index == count else 1
    negative = bits.flag()
    delta = (bits.ue(1 << 15) + 1) * (-1 if negative else 1)
    base = [reference.distance for reference in before[index - back]]
    found: dict[int, bool] = {}
    for distance in (*base, 0):
        is_used = bits.flag()
        if is_used or bits.flag():
            found[distance + delta] = is_used
    found.pop(0, None)
    ordered = sorted(found, key=lambda distance: (distance > 0, abs(distance)))
    return tuple(Reference(distance, found[distance]) for distance in ordered)


class H265(SetReader):
    """See `PacketReader`.

    Each picture lists its references, and is right if these are. So a lost packet affects only those that
    need it.
    """

    def __init__(self) -> None:
        super().__init__()
        self._sequences: dict[int, H265Sequence] = {}
        self._pictures: dict[int, PictureParameters] = {}
        self._there: dict[int, bool] = {}  # pictures by their order, and whether they are right
        self._order = 0  # of the last picture of the lowest layer

    def lose(self, why: str) -> None:
        self._why, self._there = why, {}

    def look(self, data: bytes) -> Look:
        heads: list[tuple[bytes, Bits]] = []
        for start, stop in nal_units(data):
            if stop - start < 2 or data[start] & 128:
                raise ValueError("a NAL unit of it has no valid header")
            kind, body = data[start] >> 1 & 63, start + 2
            if data[start] & 1 or data[start + 1] >> 3:
                continue  # of another layer than the base
            if kind in (_VPS, _SPS, _PPS):
                self._take_set(kind, data[start:stop])
            elif kind <= _LAST_SLICE:
                bits = Bits(unescaped(data[body : min(stop, body + SLICE_BYTES)]))
                if bits.flag():
                    heads.append((data[start:body], bits))
        if not heads:
            return Look()
        if len(heads) > 1:
            raise ValueError(f"it has {len(heads)} pictures, but a message must have one")
        return self._look_at(*heads[0])

    def _take_set(self, kind: int, unit: bytes) -> None:
        if len(unit) > MAX_SET_BYTES:
            raise ValueError(f"a parameter set of it has {len(unit)} bytes")
        if kind == _SPS:
            found = sequence_parameters(unit[2:])
            self._sequences[found.id] = found
            self.horizon = 1 << found.order_bits
            number = found.id
        else:
            bits = Bits(unescaped(unit[2:]))
            number = bits.read(4) if kind == _VPS else bits.ue(63)
            if kind == _PPS:
                sequence, _, tells_output = bits.ue(15), bits.flag(), bits.flag()
                self._pictures[number] = PictureParameters(sequence, tells_output, bits.read(3))
        self._sets[kind, number] = unit

    def _look_at(self, head: bytes, bits: Bits) -> Look:
        kind = head[0] >> 1 & 63
        layer = (head[1] & 7) - 1
        is_key = _FIRST_KEY <= kind <= _LAST_KEY
        if is_key:
            bits.flag()
        picture = self._pictures.get(bits.ue(63))
        sequence = self._sequences.get(picture.sequence) if picture else None
        if picture is None or sequence is None:
            raise ValueError("it needs parameters (VPS, SPS, PPS), which no packet before it has")
        size = sequence.width, sequence.height
        if kind in _IDR:
            self._there, self._order, self._why = {0: True}, 0, ""
            return Look(1, CLOSED, size=size)
        bits.read(picture.extra_bits)
        bits.ue(2)
        bits.read(picture.tells_output + 2 * sequence.has_planes)
        lower = bits.read(sequence.order_bits)
        restarts = is_key and (bool(self._why) or kind in _BROKEN_LINKS)
        order = lower if restarts else self._order_of(lower, sequence.order_bits)
        if layer == 0 and kind not in _LEADING_KINDS and (kind > _LAST_SUB_LAYER or kind % 2):
            self._order = order
        named = _named(bits, sequence, order, self._there)
        repeats = order in self._there and not restarts
        if is_key:
            kept = {o: right for o, right in self._there.items() if o in named and not restarts}
            self._there, self._why = {**kept, order: True}, ""
            return Look(1, OPEN, size=size, repeats=repeats)
        reason = self._why
        if not all(self._there.get(o, False) for o, is_used in named.items() if is_used):
            reason = reason or (LEADING if kind in _NEEDY_LEADING else LOST)
        self._there = {o: right for o, right in self._there.items() if o in named}
        self._there[order] = not reason
        return Look(1, NO_KEY, kind in _NEEDY_LEADING, reason, repeats, size)

    def _order_of(self, lower: int, bits: int) -> int:
        before = self._order % (1 << bits)
        return order_behind(self._order - before, before, lower, bits)


def _named(bits: Bits, sequence: H265Sequence, order: int, there: Mapping[int, bool]) -> dict[int, bool]:
    """Return the pictures that a slice header lists, by their order, and whether this one may use them."""
    sets = sequence.sets
    if bits.flag():
        index = bits.read(math.ceil(math.log2(len(sets)))) if len(sets) > 1 else 0
        if index >= len(sets):
            raise ValueError("it refers to a set of references that its parameters lack")
        chosen = sets[index]
    else:
        chosen = _reference_set(bits, len(sets), len(sets), sets)
    named = {order + reference.distance: reference.is_used for reference in chosen}
    if sequence.has_long_term:
        named |= _named_long_term(bits, sequence, order, there)
    return named


def _named_long_term(
    bits: Bits, sequence: H265Sequence, order: int, there: Mapping[int, bool]
) -> dict[int, bool]:
    known = sequence.long_term
    listed = bits.ue(32) if known else 0
    count = listed + bits.ue(32)
    size = 1 << sequence.order_bits
    named: dict[int, bool] = {}
    cycles = 0
    for i in range(count):
        if i < listed:
            index = bits.read(math.ceil(math.log2(len(known)))) if len(known) > 1 else 0
            if index >= len(known):
                raise ValueError("it refers to a reference that its parameters lack")
            lower, is_used = known[index]
        else:
            lower, is_used = bits.read(sequence.order_bits), bits.flag()
        cycles = 0 if i in (0, listed) else cycles
        if bits.flag():
            cycles += bits.ue()
            named[order - order % size + lower - cycles * size] = is_used
        else:
            found = [o for o in there if o % size == lower]
            named[found[0] if found else lower - size * size] = is_used
    return named
