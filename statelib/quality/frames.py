"""The facts about a checkpoint as small pandas frames, each with the checks that its rows must pass.

Numbers that are compared for equality are stored as text, so that 64-bit digests and missing values (None)
compare exactly. A frame is left out if an earlier error makes it meaningless. So each fault is reported once,
where it is.
"""

from collections.abc import Callable

import numpy as np
import pandas as pd

from statelib.coordinator.invariants import covers_exactly_once, key_group_coverage
from statelib.model.amounts import number_of
from statelib.model.checkpoint import CheckpointManifest, DataInterval
from statelib.quality.contents import amount_in, content_frames
from statelib.quality.drift import drift_frames
from statelib.quality.expected import expectation_frames, rehearsal_frame
from statelib.quality.facts import CheckpointFacts
from statelib.quality.intervals import interval_frames
from statelib.quality.rules import AllowedValues, Check, Equal, FoundRow, Frame


def frames_of(facts: CheckpointFacts) -> list[Frame]:
    """Return all frames that can be made from the facts. If facts are missing, a check of the frame ``counters``
    fails."""
    frames = _structure(facts)
    if facts.rehearsal is not None:
        frames.append(rehearsal_frame(facts.rehearsal))
    frames += drift_frames(facts.trends, facts.comparisons)
    return frames + expectation_frames(facts.expectations, facts.samples)


def _structure(facts: CheckpointFacts) -> list[Frame]:
    frames = [_counters(facts)]
    manifest = facts.manifest
    if manifest is None:
        return frames
    frames += [_identity(facts, manifest), _key_groups(facts, manifest), _files(facts)]
    if facts.record.interval is not None and facts.source is not None:
        frames += interval_frames(facts.record.interval, facts.source)
    if facts.unreadable:
        frames.append(_unreadable(facts.unreadable))
    return frames + content_frames(facts, manifest)


def _is_readable(facts: CheckpointFacts, manifest: CheckpointManifest) -> bool:
    """Return whether files and handles have no faults, so that all entries should be readable."""
    size, undamaged = manifest.schema.max_parallelism, not any(finding.problem for finding in facts.file_findings)
    return undamaged and (covers_exactly_once(facts.ranges, size) or not manifest.schema.states)


def _unreadable(problem: str) -> Frame:
    table = pd.DataFrame([("stored entries", problem)], columns=["what", "problem"])
    check = Check(
        "every stored entry can be read", AllowedValues("problem", ("none",)), lambda row: str(row["problem"])
    )
    return Frame("reading", ("what",), table, (check,))


def _counters(facts: CheckpointFacts) -> Frame:
    manifest = facts.manifest
    rows: list[tuple[str, int, int]] = [("manifests in _metadata", 1, int(manifest is not None))]
    if manifest is not None:
        events, states = manifest.events, len(manifest.schema.states)
        size = manifest.schema.max_parallelism
        subtasks = facts.record.parallelism if states else 0
        read_back, base = facts.read_back, facts.base_statistics
        rows += [
            ("events read, against applied + without key", events.read, events.applied + events.null_key),
            ("subtasks with state", subtasks, len(facts.ranges)),
            (f"handles beyond key group {size - 1}", 0, sum(r.end >= size for r in facts.ranges)),
            ("files looked at", len(manifest.files), len(facts.file_findings)),
            ("states with statistics", states, len(manifest.statistics)),
        ]
        if _is_readable(facts, manifest) and not facts.unreadable:
            rows.append(("states read back", states, len(read_back or ())))
        rows += [
            (f"key groups with statistics, {what}", size, len(s.entries))
            for what, part in (("recorded", manifest.statistics), ("read back", read_back or ()), ("base", base or ()))
            for s in part
            if len(s.entries) != size
        ]
        if base is not None:
            rows.append(("states of the base", states, len(base)))
    table = pd.DataFrame(rows, columns=["counter", "expected", "found"]).astype(str)
    check = Check("every counter is as expected", Equal("expected", "found"), _comparison("counter", "counter"))
    return Frame("counters", ("counter",), table, (check,))


def _identity(facts: CheckpointFacts, manifest: CheckpointManifest) -> Frame:
    record, position = facts.record, manifest.position
    rows: list[tuple[str, object, object]] = [
        ("pipeline", record.pipeline, manifest.pipeline),
        ("checkpoint id", record.checkpoint_id, manifest.checkpoint_id),
        ("kind", record.kind, manifest.kind),
        ("strategy", record.strategy, manifest.strategy),
        ("epoch", record.epoch, manifest.epoch),
        ("generation", record.generation, manifest.generation),
        ("base", record.base, manifest.base),
    ]
    if record.interval is not None:
        rows.append(("data interval", _interval(record.interval), _interval(position.interval)))
    elif facts.source is not None:
        rows.append(("data interval, the base's", _interval(facts.source.position), _interval(position.interval)))
    table = pd.DataFrame(rows, columns=["fact", "expected", "found"]).astype(str)
    check = Check(
        "_metadata belongs to this checkpoint of the catalog",
        Equal("expected", "found"),
        _comparison("_metadata", "fact"),
    )
    return Frame("identity", ("fact",), table, (check,))


def _key_groups(facts: CheckpointFacts, manifest: CheckpointManifest) -> Frame:
    size = manifest.schema.max_parallelism
    expected = 1 if manifest.schema.states else 0
    table = pd.DataFrame({"key_group": np.arange(size), "handles": key_group_coverage(facts.ranges, size)})
    check = Check(
        "every key group is covered by exactly one handle" if expected else "without states there is no handle",
        AllowedValues("handles", (expected,)),
        lambda row: f"covered by {amount_in(row, 'handles', 'handle')}, expected {expected}",
    )
    return Frame("key_groups", ("key_group",), table, (check,))


def _files(facts: CheckpointFacts) -> Frame:
    without_content = {f.path for f in facts.file_findings if f.problem in ("missing", "size")}
    without_content |= facts.partial.skipped if facts.partial else frozenset()
    rows = [
        {
            "file": f.path,
            "key_groups": str(f.key_group_range),
            "there": "no" if f.problem == "missing" else "yes",
            "expected_size": str(f.expected_size),
            "found_size": None if f.problem == "missing" else str(f.actual_size),
            "expected_content": _content(f.expected_crc, f.expected_xxh3),
            "found_content": None if f.path in without_content else _content(f.actual_crc, f.actual_xxh3),
        }
        for f in facts.file_findings
    ]
    columns = ["file", "key_groups", "there", "expected_size", "found_size", "expected_content", "found_content"]
    table = pd.DataFrame(rows, columns=columns, dtype=object)
    checks = (
        Check("every file is there", AllowedValues("there", ("yes",)), lambda row: f"{_file(row)} is missing"),
        Check(
            "every file has its size",
            Equal("expected_size", "found_size"),
            lambda row: f"{_file(row)}: size expected {row['expected_size']} bytes, found {row['found_size']}",
        ),
        Check(
            "every file has its checksum",
            Equal("expected_content", "found_content"),
            lambda row: f"{_file(row)}: crc32c expected {row['expected_content']}, found {row['found_content']}",
        ),
    )
    return Frame("files", ("file", "key_groups"), table, checks, _notes(facts))


def _notes(facts: CheckpointFacts) -> tuple[str, ...]:
    """Return the remark on what was not read, because earlier checkpoints have proved it."""
    if facts.partial is None or facts.manifest is None:
        return ()
    files, groups = len(facts.file_findings), facts.manifest.schema.max_parallelism
    read = facts.partial
    if facts.partial.by_job:
        return ("read back by tasks of the Spark job, before it published the checkpoint",)
    if not read.skipped and len(read.key_groups) == groups:
        return ()
    note = (
        f"read back: {files - len(read.skipped)} of {number_of(files, 'file')} and the entries of "
        f"{len(read.key_groups)} of {number_of(groups, 'key group')}; earlier checkpoints have proved the others"
    )
    return (note,)


def _comparison(subject: str, column: str) -> Callable[[FoundRow], str]:
    """Return a function that describes a row with an expected and a found value. ``column`` identifies the row."""
    return lambda row: f"{subject} {row[column]!r}: expected {row['expected']}, found {row['found']}"


def _file(row: FoundRow) -> str:
    return f"file {row['file']} (key groups {row['key_groups']})"


def _content(crc: int | None, xxh3: int | None) -> str:
    """Return the checksums as text: CRC-32C, followed by XXH3 if it was recorded."""
    if crc is None:
        return "not read"
    return f"{crc:08x}" if xxh3 is None else f"{crc:08x}, xxh3 {xxh3:016x}"


def _interval(interval: DataInterval | None) -> str:
    return "none" if interval is None else f"[{interval.start_ms}, {interval.end_ms}) ms"
