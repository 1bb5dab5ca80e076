"""The facts about a checkpoint as small pandas frames, each with the checks that its rows must pass.

Numbers that are compared for equality are stored as text, so that 64-bit digests and missing values (None)
compare exactly. A frame is left out if an earlier error makes it meaningless. So each fault is reported once,
where it is.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence

import numpy as np
import pandas as pd

from statelib.coordinator.invariants import covers_exactly_once, key_group_coverage
from statelib.model.amounts import number_of
from statelib.model.checkpoint import CheckpointManifest, DataInterval
from statelib.model.key_groups import all_key_groups
from statelib.model.session_state import timed_states
from statelib.model.state import KeyCounts, StateStatistics, empty_statistics
from statelib.model.types import Ttl
from statelib.quality.drift import drift_frames
from statelib.quality.expected import expectation_frames, rehearsal_frame
from statelib.quality.facts import CheckpointFacts
from statelib.quality.intervals import interval_frames
from statelib.quality.rules import AllowedValues, AtMost, Check, Equal, FoundRow, Frame
from statelib.storage.ports.inventory import FileFinding


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
    frames += [_identity(facts, manifest), _key_groups(facts, manifest), _files(facts.file_findings)]
    if facts.record.interval is not None and facts.source is not None:
        frames += interval_frames(facts.record.interval, facts.source)
    if facts.unreadable:
        frames.append(_unreadable(facts.unreadable))
    states = [state.name for state in manifest.schema.states]
    recorded, size = manifest.statistics, manifest.schema.max_parallelism
    if not _is_whole(recorded, states, size):
        return frames
    if facts.read_back is not None and _is_whole(facts.read_back, states, size):
        frames.append(_contents("contents", states, recorded, facts.read_back))
    if facts.read_keys is not None and manifest.keys is not None:
        frames.append(_keys(manifest.keys, facts.read_keys))
    base = _base_statistics(facts, manifest)
    if base is not None and _is_whole(base, states, size):
        frames += _against_base(facts, manifest, base)
    return frames


def _against_base(
    facts: CheckpointFacts, manifest: CheckpointManifest, base: tuple[StateStatistics, ...]
) -> Iterator[Frame]:
    """Yield the frames that compare the number of entries with that of the base.

    States that also change without events, or by more entries than events, are left out: timers and windowed states
    always, states with a time to live if an interval was applied."""
    timed = timed_states(manifest.schema)
    parts = list(zip(manifest.schema.states, base, manifest.statistics, strict=True))
    untimed = [(state.name, then, now) for state, then, now in parts if state.name not in timed]
    if untimed:
        yield _growth(untimed, manifest.events.applied)
    if facts.record.interval is not None:
        parts = [p for p in parts if p[0].name not in timed and not isinstance(p[0].value_type, Ttl)]
    if parts and manifest.events.applied == 0:
        states, then, now = zip(*parts, strict=True)
        yield _contents("unchanged", [state.name for state in states], then, now)


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


def _is_whole(statistics: Sequence[StateStatistics], states: Sequence[str], size: int) -> bool:
    """Return whether there are statistics of all states, each for all ``size`` key groups."""
    return len(statistics) == len(states) and all(len(s.entries) == len(s.digests) == size for s in statistics)


def _base_statistics(facts: CheckpointFacts, manifest: CheckpointManifest) -> tuple[StateStatistics, ...] | None:
    """Return the statistics of the base; those of empty state if there is no base, None if they are missing. A seed has
    no base, and its state is not empty before it."""
    if facts.base_statistics is None and facts.record.base is None and not manifest.seed:
        whole = all_key_groups(manifest.schema.max_parallelism)
        return tuple(empty_statistics(whole) for _ in manifest.schema.states)
    return facts.base_statistics


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
        lambda row: f"covered by {_amount(row, 'handles', 'handle')}, expected {expected}",
    )
    return Frame("key_groups", ("key_group",), table, (check,))


def _files(findings: Sequence[FileFinding]) -> Frame:
    rows = [
        {
            "file": f.path,
            "key_groups": str(f.key_group_range),
            "there": "no" if f.problem == "missing" else "yes",
            "expected_size": str(f.expected_size),
            "found_size": None if f.problem == "missing" else str(f.actual_size),
            "expected_content": _content(f.expected_crc, f.expected_xxh3),
            "found_content": None if f.problem in ("missing", "size") else _content(f.actual_crc, f.actual_xxh3),
        }
        for f in findings
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
    return Frame("files", ("file", "key_groups"), table, checks)


def _contents(
    name: str, states: Sequence[str], expected: Iterable[StateStatistics], actual: Iterable[StateStatistics]
) -> Frame:
    """Return a frame that compares statistics per state and key group. ``name``: ``contents`` compares the recorded
    with the read ones, ``unchanged`` those of the base with the recorded ones."""
    parts = [
        pd.DataFrame(
            {
                "state": state,
                "key_group": np.arange(len(e.entries)),
                "expected_entries": e.entries.astype(str),
                "found_entries": a.entries.astype(str),
                "expected_digest": e.digests.astype(str),
                "found_digest": a.digests.astype(str),
            }
        )
        for state, e, a in zip(states, expected, actual, strict=True)
    ]
    empty = ["state", "key_group", "expected_entries", "found_entries", "expected_digest", "found_digest"]
    table = pd.concat(parts, ignore_index=True) if parts else pd.DataFrame(columns=empty, dtype=object)
    suffix, reason = {
        "contents": ("read back as recorded", ""),
        "unchanged": ("as in the base, since no event was applied", " although no event was applied"),
    }[name]
    checks = (
        Check(
            f"the entries of every state and key group are {suffix}",
            Equal("expected_entries", "found_entries"),
            lambda row: f"expected {_amount(row, 'expected_entries', 'entry')}, found {row['found_entries']}{reason}",
        ),
        Check(
            f"the content digests of every state and key group are {suffix}",
            Equal("expected_digest", "found_digest"),
            lambda row: f"content digest expected {row['expected_digest']}, found {row['found_digest']}{reason}",
        ),
    )
    return Frame(name, ("state", "key_group"), table, checks)


def _keys(recorded: KeyCounts, read: KeyCounts) -> Frame:
    expected, counted = recorded.keys.astype(str), read.keys.astype(str)
    table = pd.DataFrame({"key_group": np.arange(len(counted)), "expected_keys": expected, "found_keys": counted})
    check = Check(
        "every key group has as many distinct keys as recorded",
        Equal("expected_keys", "found_keys"),
        lambda row: f"expected {_amount(row, 'expected_keys', 'distinct key')}, found {row['found_keys']}",
    )
    return Frame("keys", ("key_group",), table, (check,))


def _amount(row: FoundRow, field: str, noun: str) -> str:
    """Return a number of the row, which is stored as text, with its noun."""
    return number_of(int(str(row[field])), noun)


def _growth(states: Iterable[tuple[str, StateStatistics, StateStatistics]], applied: int) -> Frame:
    """Return a frame that compares the growth of states with the number of applied events. An event has one key, and
    in map state one user key, so it adds at most one entry to a state."""
    rows = [
        (state, before.total_entries, after.total_entries, before.total_entries + applied)
        for state, before, after in states
    ]
    table = pd.DataFrame(rows, columns=["state", "base_entries", "entries", "most_entries"])
    check = Check(
        "no state grows by more entries than events were applied",
        AtMost("entries", "most_entries"),
        lambda row: (
            f"{_amount(row, 'entries', 'entry')}, expected at most {row['most_entries']} "
            f"(those of the base and one per applied event)"
        ),
    )
    return Frame("growth", ("state",), table, (check,))


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
