"""Examine logs for damage, losses and anomalous times, with places and remedies.

Here: the answer of `logloom doctor`. Messages are examined stretch by stretch, so that memory doesn't grow
with the length of a log. No Beam.
Elsewhere: the state of an examination (observations), values of the answer (findings), anomalies of times
(times), the columns of tables (tables), anomalies of frames and calibrations
(logloom.transforms.rows.frame_notes, logloom.transforms.rows.calibrations), damage and recovery
(logloom.io.logs), printing (logloom.cli).
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray

from logloom import parts
from logloom.blocks import Ragged
from logloom.errors import OF_CONTENT, LogReadError, TruncatedLogError
from logloom.io.logs.duplicates import equal_logs
from logloom.io.logs.files.collector import Gathering
from logloom.io.logs.files.container import Chunk, LostBytes
from logloom.io.logs.files.container_log import ContainerLog
from logloom.io.logs.files.log_part import LogPart, own_index
from logloom.io.logs.interface import (
    MAX_TIME,
    MIN_TIME,
    FieldSpec,
    Log,
    LogSummary,
    OpenOptions,
    Refusal,
    TopicRequest,
    unfinished_words,
)
from logloom.io.logs.log_list import LogFiles
from logloom.io.logs.match import access_to, group_logs
from logloom.io.logs.message_times import misfit_words
from logloom.io.logs.messages.picture_structure import has_pictures, picture_problems
from logloom.io.logs.messages.raw_messages import Decoder, RawMessages
from logloom.io.logs.opening import kind_of, open_log
from logloom.io.logs.recording_times import is_static
from logloom.pipelines.doctor.findings import (
    SALVAGE,
    SALVAGED,
    Diagnosis,
    HealthFinding,
    LostRange,
    share_of,
)
from logloom.pipelines.doctor.missing_splits import missing_splits
from logloom.pipelines.doctor.observations import Examination
from logloom.pipelines.doctor.times import judge_times
from logloom.text import OnMessage, counted, human_time, ignore_message
from logloom.transforms.rows.accounts import SET_BACK_REMEDY
from logloom.transforms.rows.calibrations import calibration_changes, camera_topics, changes_in_words
from logloom.transforms.rows.derive import columns as derive
from logloom.transforms.rows.frame_notes import frame_notes, note_words
from logloom.transforms.rows.frames import frame_topics, read_frames
from logloom.transforms.rows.plan.row_plan import Span

STRETCH_BYTES = 64 << 20

_FRAMES = ("transforms[].child_frame_id", "child_frame_id", "header.frame_id", "frame_id")
_MAX_FRAME = 256  # characters
_CALIBRATION_REMEDY = (
    "rows have the last calibration of the log, or with `resample: previous` that of their time; see "
    "docs/calibration.md"
)
_FRAMES_REMEDY = "`logloom info --tree` draws the frames; docs/transforms.md explains how lookups treat this"

TypesSeen = dict[tuple[str, str], tuple[str, str, str]]  # see `logloom.parts.Part`


def examine_all(
    logs: Sequence[str], storage_options: Mapping[str, Any], on_skipped: OnMessage = ignore_message
) -> Iterator[Diagnosis]:
    """Examine the logs of files, folders or globs, one after the other.

    Args:
        on_skipped: see `group_logs`.

    Raises:
        UsageError: one matches nothing.
    """
    seen: TypesSeen = {}
    found = group_logs(logs, storage_options, on_skipped)
    options = OpenOptions("salvage", access_to(storage_options, found), guesses_tables=True)
    groups = equal_logs(found, options.storage_options)
    firsts = {log.log_id: first for first, *others in groups for log in others}
    missing = missing_splits(found)
    for files in found:
        diagnosis = examine(files, options, seen)
        if not any(finding.kind == "missing" for finding in diagnosis.findings):  # by metadata.yaml
            more = missing.get(files.log_id, ())
            diagnosis = replace(diagnosis, findings=(*diagnosis.findings, *more))
        if first := firsts.get(files.log_id):
            diagnosis = replace(diagnosis, findings=(*diagnosis.findings, _duplicate(files, first)))
        yield diagnosis


def broken_parts(commands: Collection[str] = ()) -> list[parts.Broken]:
    """List the entry points of other packages that can't be used; imports all that they name.

    Args:
        commands: of logloom that are of no part.
    """
    return [*parts.broken(commands=commands), *derive.broken()]


def _duplicate(files: LogFiles, first: LogFiles) -> HealthFinding:
    """Report that a log has the same bytes as another one."""
    message = f"it has the same content as {first.log_id} ({first.uris[0]})"
    remedy = "remove one; a build puts both in one split, and with `duplicates: keep_first` leaves it out"
    line = "duplicates: keep_first"
    return HealthFinding("duplicate", files.uris[0], None, "", 0, message, remedy, recipe=line)


def examine(files: LogFiles, options: OpenOptions, seen: TypesSeen | None = None) -> Diagnosis:
    """Read a log from end to end; damage becomes findings, never an error.

    Args:
        options: with `on_error` salvage.
        seen: the types of the columns of tables that were examined before; updated.
    """
    of_kind: tuple[HealthFinding, ...] = ()
    try:
        log = open_log(files.uris, options)
        of_kind = _examine_kind(log, files.uris, options, {} if seen is None else seen)
        summary = log.summary
        if not summary.topics:  # an empty file, or not a log: reading it completely reports this
            _ = open_log(files.uris, replace(options, on_error="fail")).summary
        found = _examine_files(log) if isinstance(log, ContainerLog) else _examine_spans(log)
    except LogReadError as error:
        remedy = "correct the path, or leave the log out"
        finding = HealthFinding("unreadable", files.uris[0], 0, "", 0, str(error), remedy)
        return Diagnosis(files.log_id, tuple(files.uris), findings=(finding, *of_kind))
    topics = tuple(found.health(topic, summary) for topic in summary.topics)
    strange = (
        *_emptiness(summary),
        *_set_backs(log),
        *judge_times(topics, found.recorded, summary.uris[0]),
    )
    findings = (*found.findings, *of_kind, *strange, *_examine_frames(log), *_examine_calibrations(log))
    lost = tuple(found.lost)
    return Diagnosis(
        files.log_id, summary.uris, summary.size, topics, findings, lost, unchecked=found.unchecked
    )


def _emptiness(summary: LogSummary) -> Iterator[HealthFinding]:
    """Report that a log has no messages, so that a build of it alone has no rows."""
    if not summary.num_messages:
        message = "it has no messages (the writer probably crashed)"
        yield HealthFinding("empty", summary.uris[0], None, "", 0, message, "exclude it")


def _set_backs(log: Log) -> Iterator[HealthFinding]:
    """The places at which the clock was set back."""
    summary = log.summary
    for found in summary.recorded.set_backs:
        (place,) = log.places(found.topics[0], np.array([found.position]))
        message = f"the clock was set back by {found.words} of the log ({human_time(found.at)})"
        yield HealthFinding(
            "set_back",
            place.uri,
            place.offset,
            ", ".join(found.topics),
            sum(summary.topics[topic].num_messages for topic in found.topics),
            message,
            SET_BACK_REMEDY,
            place.unit,
            recipe="time: {set_back: first}",
            time=found.at,
            duration=found.at - found.to,
        )


def _examine_kind(
    log: Log, uris: Sequence[str], options: OpenOptions, seen: TypesSeen
) -> tuple[HealthFinding, ...]:
    """What the part that offers the log's kind finds beside messages."""
    if isinstance(log, ContainerLog):
        return ()
    kind = kind_of(uris[0], options).name
    if kind not in parts.names("examiners"):
        return ()
    return tuple(parts.load("examiners", kind)(uris, options, seen))


def _examine_files(log: ContainerLog) -> Examination:
    """Read each file of a log chunk by chunk, which also finds damage without lost messages."""
    found = Examination(log.summary.recorded, unchecked=0)
    decoders = {topic: _decoder(log, topic, found) for topic in log.summary.topics}
    if not any(decoders.values()):  # so that nothing of the log is usable
        found.findings = [replace(finding, severity="damage") for finding in found.findings]
    pictures = {
        topic
        for topic, decoder in decoders.items()
        if decoder is not None and has_pictures(log.summary.topics[topic], decoder)
    }
    for part in log.parts:
        remedy = f"{part.container.remedy}; {SALVAGED}"
        reindex = getattr(part.container, "reindex", "")
        if part.index.is_scanned and not part.index.lost and (broken := _broken_index(part, remedy)):
            found.findings.append(broken)
        if part.index.is_scanned and reindex:
            message = "it has no usable index, so each reading starts with a scan of the whole file"
            if part.unfinished:
                message = f"it {unfinished_words(part.unfinished)}; {message}"
            found.findings.append(HealthFinding("index", part.uri, 0, "", 0, message, reindex))
        known = _take_lost(part, found, remedy)
        for number, chunk in part.chunks(np.arange(len(part.index.stretches))):
            row, origin = part.index.stretches[number], part.origin(number)
            if not (chunk.is_checked or part.index.is_checked):
                found.unchecked = (found.unchecked or 0) + len(chunk)
            if chunk.problems and (origin.unit, origin.offset) not in known:
                counts = {topic: part.num_lost(number, chunk, topic) for topic in part.channels}
                has_range = any(counts.values()) and origin.unit == "byte"
                length = int(row["record"] or row["length"]) if has_range else 0
                where = LostRange(part.uri, origin.offset, length)
                found.lose("damaged", where, "; ".join(chunk.problems[:4]), counts, remedy, origin.unit)
            for topic, rows in part.rows_by_topic(chunk).items():
                _watch(found, part, number, chunk, topic, rows, decoders[topic], topic in pictures)
    files = {part.uri for part in log.parts}
    for refusal in log.summary.refusals:
        if refusal.uri not in files:
            found.findings.append(
                HealthFinding(
                    "missing",
                    refusal.uri,
                    None,
                    "",
                    0,
                    refusal.reason,
                    f"copy the log again; {SALVAGED}",
                    recipe=SALVAGE,
                )
            )
    found.findings += list(_refused(found))
    return found


def _refused(found: Examination) -> Iterator[HealthFinding]:
    """Report each topic's messages that don't fit their definition, and broken pictures."""
    for (topic, kind), first in sorted(found.refused.items()):
        count, watched = first.num_messages, found.watched(topic)
        which = share_of(count, watched.messages + watched.unfit, "message")
        what = "can't be read with the definition" if kind == "unfit" else "contain no whole picture"
        message = f"{which} of {topic} {what}; the first: {first.reason}"
        yield HealthFinding(
            kind, first.uri, first.offset, topic, count, message, SALVAGED, first.unit, recipe=SALVAGE
        )


def _broken_index(part: LogPart, remedy: str) -> HealthFinding | None:
    """Report the error of a file that readers get without salvage, though a scan may find all of its
    messages.
    """
    try:
        own_index(part.container)
    except LogReadError as error:
        kind = "truncated" if isinstance(error, TruncatedLogError) else "damaged"
        return HealthFinding(kind, part.uri, None, "", 0, str(error), remedy, recipe=SALVAGE)
    return None


def _take_lost(part: LogPart, found: Examination, remedy: str) -> set[tuple[str, int]]:
    """Record the damage that the scan of a file found; return its places (unit, offset)."""
    places: dict[tuple[str, int], list[LostBytes]] = {}
    for lost in part.index.lost:
        places.setdefault((lost.unit, lost.offset), []).append(lost)
    for (unit, offset), losses in places.items():
        counts: dict[str, int] = {}
        for lost in losses:
            counts[lost.topic] = counts.get(lost.topic, 0) + lost.num_messages
        where = LostRange(part.uri, offset, max(lost.length for lost in losses))
        kind = "truncated" if any(lost.torn for lost in losses) else "damaged"
        found.lose(kind, where, losses[0].reason, counts, remedy, unit)
    return set(places)


def _decoder(log: ContainerLog, topic: str, found: Examination) -> Decoder | None:
    try:
        return log.decoder(topic)
    except LogReadError as error:
        uri = log.summary.uris[0]
        remedy = "leave the topic out, as `info --recipe` does, or install a package that decodes it"
        found.findings.append(HealthFinding("undecodable", uri, None, topic, 0, str(error), remedy))
        return None


def _watch(
    found: Examination,
    part: LogPart,
    number: int,
    chunk: Chunk,
    topic: str,
    rows: NDArray[np.intp],
    decoder: Decoder | None,
    are_pictures: bool,
) -> None:
    """Observe a topic's messages in one chunk."""
    watched = found.watched(topic)
    if found.recorded.strays and not is_static(topic):
        rows = rows[~found.recorded.are_strays(chunk.log_time[rows])]
    if decoder is None:
        watched.add(chunk.log_time[rows], None)
        return
    origin, gathering = part.origin(number), Gathering(topic)
    gathering.add(chunk, rows, origin, is_sparse=False)
    raw = gathering.raw()
    fits = decoder.check(raw)
    reasons = {row: misfit_words(raw, row) for row in np.flatnonzero(~fits).tolist()}
    found.refuse("unfit", raw, origin, reasons)
    if are_pictures:
        broken = picture_problems(raw, decoder, np.flatnonzero(fits))
        found.refuse("picture", raw, origin, broken)
        fits[list(broken)] = False
    has_header = decoder.time_source(("header",)) is not None
    stamps = decoder.header_time(raw)[fits] if has_header else None
    watched.add(raw.log_time[fits], stamps, _frames_of(decoder, raw, np.flatnonzero(fits)))


def _frames_of(
    decoder: Decoder, raw: RawMessages, fits: NDArray[np.intp]
) -> Callable[[NDArray[np.intp]], Sequence[Hashable] | None]:
    """Return a function from numbers of messages to their frames; see `WatchedTopic.add`."""

    def frames(rows: NDArray[np.intp]) -> Sequence[Hashable] | None:
        messages = raw.take(fits[rows])
        for path in _FRAMES:
            spec = FieldSpec((path,), strings=_MAX_FRAME)
            try:
                ctype = decoder.column_type(spec)
                values = decoder.take(messages, spec) if ctype.kind != "bytes" else None
            except OF_CONTENT:
                continue
            if isinstance(values, Ragged) and len(values.values):
                return [row.tobytes() for row in values]
        return None

    return frames


def _examine_spans(log: Log) -> Examination:
    """Read a log of another kind span by span, through the interface `Log`."""
    summary = log.summary
    found = Examination(summary.recorded)
    for refusal in summary.refusals:
        where = LostRange(refusal.uri, refusal.offset, 0)
        lost = {refusal.topic: refusal.num_messages}
        found.lose("damaged", where, refusal.reason, lost, SALVAGED, refusal.unit)
    unfit: dict[str, list[Refusal]] = {}
    for start, stop in spans(summary):
        request = TopicRequest(start, stop, ("header", "log"), None)
        for topic, messages in log.read(dict.fromkeys(summary.topics, request)).items():
            unfit.setdefault(topic, []).extend(messages.refused)
            has_header = log.time_source(topic, ("header",)) is not None
            found.watched(topic).add(messages.log_time, messages.time if has_header else None)
    for topic, refused in sorted(unfit.items()):
        if refused:
            where = LostRange(refused[0].uri, refused[0].offset, 0)
            lost = {topic: sum(refusal.num_messages for refusal in refused)}
            others = f", and {counted(len(refused) - 1, 'other one')}" if len(refused) > 1 else ""
            found.lose("unfit", where, f"{refused[0].reason}{others}", lost, SALVAGED, refused[0].unit)
    return found


def _examine_frames(log: Log) -> Iterator[HealthFinding]:
    """Return notes on the frames of a log opened for salvage."""
    try:
        dynamic, static = frame_topics(log)
        if not (dynamic or static):
            return
        found = frame_notes(read_frames(log, dynamic, static), Span(MIN_TIME, MAX_TIME))
    except LogReadError:  # reported by other findings
        return
    topics = ", ".join((*dynamic, *static))
    for text, count in found.items():
        words = note_words(text, count)
        yield HealthFinding("frames", log.summary.uris[0], None, topics, count, words, _FRAMES_REMEDY)


def _examine_calibrations(log: Log) -> Iterator[HealthFinding]:
    """Return notes on changing calibrations of cameras, of a log opened for salvage."""
    for topic in camera_topics(log):
        try:
            changes = calibration_changes(log, topic)
        except LogReadError:  # reported by other findings
            continue
        if len(changes):
            message = f"the calibration {changes_in_words(changes)}"
            uri = log.summary.uris[0]
            yield HealthFinding("calibration", uri, None, topic, len(changes), message, _CALIBRATION_REMEDY)


def spans(summary: LogSummary, max_bytes: int = STRETCH_BYTES) -> Iterable[tuple[int, int]]:
    """Yield consecutive spans of log time with about `max_bytes` each; the outer ends are open."""
    order = np.argsort(summary.chunk_times[:, 0], kind="stable")
    piece = np.cumsum(summary.chunk_bytes[order]) // max_bytes
    starts = summary.chunk_times[order[1:], 0][np.diff(piece) > 0]
    edges = [MIN_TIME, *np.unique(starts).tolist(), MAX_TIME]
    return pairwise(edges)
