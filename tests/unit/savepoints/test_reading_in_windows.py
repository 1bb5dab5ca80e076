"""Reading a whole snapshot some key groups at a time: all of it, proved, and few keys held at once."""

from dataclasses import replace
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
import pytest

from statelib.backends.heap.backend import HeapKeyedStateBackend
from statelib.backends.keyed import KeyedStateBackend
from statelib.errors import CorruptStateError
from statelib.model.handles import ByteStreamStateHandle, KeyGroupsStateHandle
from statelib.model.key_groups import KeyGroupRange, all_key_groups
from statelib.restore.check import count_keys
from statelib.restore.entries import windows_of
from statelib.savepoints.verification.stored_content import read_content
from statelib.testing.keyed_samples import owned, put, sample_schema
from statelib.testing.stored_checkpoints import Way, store_checkpoint

WAYS = [
    Way("heap", "canonical", parallelism=2),
    Way("heap", "canonical", parallelism=2, manifest=False),
    Way("heap", "full", parallelism=3),
    Way("heap", "changelog"),
    Way("rocksdb", "full", parallelism=2),
    Way("rocksdb", "changelog"),
]
SCHEMA = sample_schema(16)
KEYS = [f"key-{number}" for number in range(300)]


def fill(backend: KeyedStateBackend) -> None:
    """Write an entry in ``means`` for every key, one in ``visits`` for every second key, and two in ``per_place``
    for every third."""
    keys = owned(SCHEMA, KEYS, backend.key_group_range)
    put(backend, "means", keys, [1.5] * len(keys))
    visited, placed = (owned(SCHEMA, KEYS[::step], backend.key_group_range) for step in (2, 3))
    put(backend, "visits", visited, [[1, 2]] * len(visited))
    for place in ("here", "there"):
        put(backend, "per_place", placed, [7] * len(placed), [place] * len(placed))


@pytest.fixture
def held(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Return a list that grows by the number of distinct keys each time that keys are made distinct."""
    numbers: list[int] = []
    unique = pc.unique

    def recorded(values: pa.ChunkedArray) -> pa.Array:
        made = unique(values)
        numbers.append(len(made))
        return made

    monkeypatch.setattr(pc, "unique", recorded)
    return numbers


@pytest.mark.parametrize("way", WAYS, ids=lambda way: f"{way.backend}-{way.strategy}-{way.manifest}")
def test_everything_is_read_while_memory_holds_the_keys_of_one_key_group(
    tmp_path: Path, way: Way, held: list[int]
) -> None:
    opened = store_checkpoint(tmp_path / "stored", SCHEMA, way, fill)
    scratch = str(tmp_path)
    whole = read_content(opened, scratch)
    assert whole.keys.total == len(KEYS)
    held.clear()
    cut = read_content(replace(opened, window_bytes=1), scratch)
    assert cut.keys.same(whole.keys)
    assert all(one.same_content(other) for one, other in zip(cut.statistics, whole.statistics, strict=True))
    assert max(held) == max(whole.keys.keys)


@pytest.mark.parametrize("compressed", [True, False])
@pytest.mark.parametrize("way", WAYS[:1] + WAYS[2:4], ids=lambda way: way.strategy)
def test_damage_is_detected_whatever_the_windows(tmp_path: Path, way: Way, compressed: bool) -> None:
    opened = store_checkpoint(tmp_path / "stored", SCHEMA, replace(way, compressed=compressed), fill)
    files = [path for path in (tmp_path / "stored").rglob("*-*-*") if path.is_file()]
    file = max(files, key=lambda path: path.stat().st_size)
    data = file.read_bytes()
    for at in range(len(data) - 1, len(data) // 2, -len(data) // 40):
        file.write_bytes(data[:at] + bytes([data[at] ^ 1]) + data[at + 1 :])
        with pytest.raises(CorruptStateError, match=file.name):
            list(replace(opened, window_bytes=1).rows(str(tmp_path)))


def test_counting_a_live_backend_holds_only_the_keys_of_one_window(held: list[int]) -> None:
    backend = HeapKeyedStateBackend(SCHEMA, all_key_groups(16))
    names = [f"{number:0400}" for number in range(30_000)]  # The names are 12 MB per state, more than one window.
    put(backend, "means", names, [1.5] * len(names))
    put(backend, "visits", names[::2], [[1]] * len(names[::2]))
    assert count_keys(backend).total == len(names)
    assert 0 < max(held) < len(names)


def test_windows_cover_every_key_group_once() -> None:
    for first, last, size_bytes in ((0, 127, 0), (0, 127, 10), (5, 11, 1000), (3, 3, 10), (7, 6, 10)):
        held = KeyGroupRange(first, last)
        handle = KeyGroupsStateHandle(held, (0,) * len(held), ByteStreamStateHandle("x", bytes(size_bytes)))
        windows = windows_of(handle, 4)
        assert [group for window in windows for group in range(window.start, window.end + 1)] == [
            *range(first, last + 1)
        ]
        assert len(windows) == max(min(len(held), -(-size_bytes // 4)), 1)
