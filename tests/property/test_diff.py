"""A diff of two snapshots is the diff of the two dicts that they hold, whatever they were taken with."""

import tempfile
from pathlib import Path
from typing import Any

import pyarrow as pa
from hypothesis import given, settings
from hypothesis import strategies as st

from statelib.backends.keyed import KeyedStateBackend
from statelib.model.state import KeyedStateSchema, StateDescriptor, StateKind
from statelib.model.types import LONG, STRING
from statelib.savepoints.diff.states import Diff
from statelib.savepoints.opened import Checkpoint
from statelib.testing.counting_reader import counting
from statelib.testing.keyed_samples import owned, put, serialized
from statelib.testing.stored_checkpoints import Way, store_checkpoint
from tests.support.extent import examples

TOTAL = StateDescriptor("total", StateKind.VALUE, LONG)
PLACES = StateDescriptor("places", StateKind.MAP, LONG, STRING)
SCHEMA = KeyedStateSchema(STRING, 16, (TOTAL, PLACES))
Content = tuple[dict[str, int], dict[tuple[str, str], int | None]]

NAMES = st.sampled_from([f"k{i}" for i in range(12)])
CONTENTS = st.tuples(
    st.dictionaries(NAMES, st.integers(-3, 3)),
    st.dictionaries(st.tuples(NAMES, st.sampled_from(["", "a", "ab"])), st.none() | st.integers(0, 2)),
)
KINDS = [("heap", "canonical"), ("rocksdb", "canonical"), ("rocksdb", "full")]
LOGS = [("heap", "changelog"), ("rocksdb", "changelog")]
WAYS = st.builds(
    lambda kind, parallelism, manifest, inline: Way(kind[0], kind[1], parallelism, manifest or kind in LOGS, inline),
    st.sampled_from([*KINDS, *LOGS]),
    st.integers(1, 3),
    st.booleans(),
    st.sampled_from([0, 1 << 20]),
)


def stored(root: Path, way: Way, content: Content) -> Checkpoint:
    totals, places = content

    def fill(backend: KeyedStateBackend) -> None:
        mine = owned(SCHEMA, sorted(totals), backend.key_group_range)
        put(backend, "total", mine, [totals[key] for key in mine])
        users = set(owned(SCHEMA, sorted({key for key, _ in places}), backend.key_group_range))
        pairs = [pair for pair in sorted(places) if pair[0] in users]
        keys = serialized(SCHEMA, "places", [key for key, _ in pairs], [place for _, place in pairs])
        backend.write(backend.read("places", keys), "places", pa.array([places[p] for p in pairs], pa.int64()))

    return store_checkpoint(root, SCHEMA, way, fill)


def expected(old: dict[Any, Any], new: dict[Any, Any]) -> dict[Any, tuple[str, Any, Any]]:
    added = {key: ("added", None, new[key]) for key in new.keys() - old.keys()}
    removed = {key: ("removed", old[key], None) for key in old.keys() - new.keys()}
    changed = {key: ("changed", old[key], new[key]) for key in old.keys() & new.keys() if old[key] != new[key]}
    return added | removed | changed


def changes_by_key(table: pa.Table) -> dict[Any, tuple[str, Any, Any]]:
    rows = table.to_pylist()
    by_key = {
        (row["key"], row["user_key"]) if "user_key" in row else row["key"]: (row["change"], row["before"], row["after"])
        for row in rows
    }
    assert len(by_key) == len(rows)
    assert table["key_group"].to_pylist() == sorted(table["key_group"].to_pylist())
    return by_key


@settings(max_examples=examples(40), deadline=None)
@given(CONTENTS, CONTENTS, WAYS, WAYS, st.sampled_from([1, 300, 1 << 20]))
def test_the_diff_of_two_snapshots_is_that_of_their_dicts(
    old: Content, new: Content, way: Way, other: Way, window_bytes: int
) -> None:
    with tempfile.TemporaryDirectory() as root:
        before, after = stored(Path(root, "a"), way, old), stored(Path(root, "b"), other, new)
        scratch = Path(root, "scratch")
        scratch.mkdir()
        made = Diff(before, after, str(scratch), window_bytes)
        assert [state.name for state in made.states] == ["total", "places"]
        for state_diff, mine, theirs in zip(made.states, old, new, strict=True):
            differences = expected(mine, theirs)
            assert changes_by_key(made.to_arrow(state_diff.name)) == differences
            kinds = [kind for kind, _, _ in differences.values()]
            counts = tuple(map(kinds.count, ("added", "removed", "changed")))
            assert (state_diff.added, state_diff.removed, state_diff.changed) == counts
            for entries, content, made_by in (
                (state_diff.entries_before, mine, way),
                (state_diff.entries_after, theirs, other),
            ):
                shared = state_diff.key_groups_skipped > 0 and not made_by.manifest
                assert entries == len(content) or (entries is None and shared)
            assert state_diff.different is bool(differences)
            assert state_diff.key_groups_read + state_diff.key_groups_skipped == 16
        assert list(scratch.iterdir()) == []


@settings(max_examples=examples(20), deadline=None)
@given(CONTENTS, WAYS, WAYS)
def test_equal_content_is_recognised_without_reading(content: Content, way: Way, other: Way) -> None:
    """The manifests show it, or, without them, the equal files."""
    with tempfile.TemporaryDirectory() as root:
        before = counting(stored(Path(root, "a"), way, content))
        after = counting(stored(Path(root, "b"), other, content)) if way.manifest and other.manifest else before
        before.schema()  # Without a manifest, the stream's header must be read to get the states.
        header = before.read_bytes.copy()
        before.read_bytes.clear()
        for state in Diff(before, after).states:
            assert (state.different, state.key_groups_read, state.key_groups_skipped) == (False, 0, 16)
        assert sum(before.read_bytes.values()) <= 4 * sum(header.values())
        assert not way.manifest or not before.read_bytes + after.read_bytes
