"""The frames of the entries of a checkpoint: as recorded, and as the base and the applied events allow."""

from collections.abc import Iterable, Iterator, Sequence

import numpy as np
import numpy.typing as npt
import pandas as pd

from statelib.model.amounts import number_of
from statelib.model.checkpoint import CheckpointManifest
from statelib.model.key_groups import all_key_groups
from statelib.model.session_state import timed_states
from statelib.model.state import KeyCounts, StateStatistics, empty_statistics
from statelib.model.types import Ttl
from statelib.quality.facts import CheckpointFacts
from statelib.quality.rules import AtMost, Check, Equal, FoundRow, Frame


def content_frames(facts: CheckpointFacts, manifest: CheckpointManifest) -> list[Frame]:
    """Return the frames that can be made: none if the manifest has no statistics of all states and key groups."""
    states = [state.name for state in manifest.schema.states]
    recorded, size = manifest.statistics, manifest.schema.max_parallelism
    if not _is_whole(recorded, states, size):
        return []
    frames: list[Frame] = []
    if facts.read_back is not None and _is_whole(facts.read_back, states, size):
        frames.append(_contents("contents", states, recorded, facts.read_back, facts.read_key_groups(size)))
    if facts.read_keys is not None and manifest.keys is not None:
        frames.append(_keys(manifest.keys, facts.read_keys, facts.read_key_groups(size)))
    base = _base_statistics(facts, manifest)
    if base is not None and _is_whole(base, states, size):
        if frames and facts.partial is not None:
            carried = np.setdiff1d(np.arange(size), sorted(facts.partial.written | facts.partial.key_groups))
            frames.append(_contents("carried", states, base, recorded, carried))
        if manifest.mends is None:
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
        yield _contents("unchanged", [s.name for s in states], then, now, np.arange(manifest.schema.max_parallelism))


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


def _contents(
    name: str,
    states: Sequence[str],
    expected: Iterable[StateStatistics],
    actual: Iterable[StateStatistics],
    key_groups: npt.NDArray[np.int64],
) -> Frame:
    """Return a frame that compares statistics per state and key group of ``key_groups``. ``name``: ``contents``
    compares the recorded with the read ones, ``carried`` and ``unchanged`` those of the base with the recorded ones."""
    parts = [
        pd.DataFrame(
            {
                "state": state,
                "key_group": key_groups,
                "expected_entries": e.entries[key_groups].astype(str),
                "found_entries": a.entries[key_groups].astype(str),
                "expected_digest": e.digests[key_groups].astype(str),
                "found_digest": a.digests[key_groups].astype(str),
            }
        )
        for state, e, a in zip(states, expected, actual, strict=True)
    ]
    empty = ["state", "key_group", "expected_entries", "found_entries", "expected_digest", "found_digest"]
    table = pd.concat(parts, ignore_index=True) if parts else pd.DataFrame(columns=empty, dtype=object)
    suffix, reason = {
        "contents": ("read back as recorded", ""),
        "carried": ("as in the base where no new file has entries", " although no new file has entries of it"),
        "unchanged": ("as in the base, since no event was applied", " although no event was applied"),
    }[name]
    checks = (
        Check(
            f"the entries of every state and key group are {suffix}",
            Equal("expected_entries", "found_entries"),
            lambda row: f"expected {amount_in(row, 'expected_entries', 'entry')}, found {row['found_entries']}{reason}",
        ),
        Check(
            f"the content digests of every state and key group are {suffix}",
            Equal("expected_digest", "found_digest"),
            lambda row: f"content digest expected {row['expected_digest']}, found {row['found_digest']}{reason}",
        ),
    )
    return Frame(name, ("state", "key_group"), table, checks)


def _keys(recorded: KeyCounts, read: KeyCounts, key_groups: npt.NDArray[np.int64]) -> Frame:
    expected, counted = recorded.keys[key_groups].astype(str), read.keys[key_groups].astype(str)
    table = pd.DataFrame({"key_group": key_groups, "expected_keys": expected, "found_keys": counted})
    check = Check(
        "every key group has as many distinct keys as recorded",
        Equal("expected_keys", "found_keys"),
        lambda row: f"expected {amount_in(row, 'expected_keys', 'distinct key')}, found {row['found_keys']}",
    )
    return Frame("keys", ("key_group",), table, (check,))


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
            f"{amount_in(row, 'entries', 'entry')}, expected at most {row['most_entries']} "
            f"(those of the base and one per applied event)"
        ),
    )
    return Frame("growth", ("state",), table, (check,))


def amount_in(row: FoundRow, field: str, noun: str) -> str:
    """Return a number of the row, which is stored as text, with its noun."""
    return number_of(int(str(row[field])), noun)
