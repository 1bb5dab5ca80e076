"""Every backend finds all entries of some keys, and of some keys in some windows. RocksDB reads few others."""

from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

from statelib.backends.heap.backend import HeapKeyedStateBackend
from statelib.backends.keyed import KeyedStateBackend
from statelib.backends.rocksdb.backend import RocksDBKeyedStateBackend
from statelib.model.key_groups import all_key_groups
from statelib.model.state import KeyedStateSchema, StateDescriptor, StateKind
from statelib.model.types import LONG, STRING
from statelib.serializers.entries.keys import encode_keys, key_groups, prefixed_keys, split_keys
from statelib.wire.ragged import Ragged, concat, from_list, gather

PER_ITEM = StateDescriptor("per_item", StateKind.MAP, LONG, STRING, STRING)
SCHEMA = KeyedStateSchema(STRING, 16, (PER_ITEM, StateDescriptor("empty", StateKind.MAP, LONG, STRING)))
USERS = ["", "a", "aa", "b" * 300, "ÿ"] + [f"user-{n}" for n in range(95)]


@pytest.fixture(params=["heap", "rocksdb"])
def backend(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[KeyedStateBackend]:
    whole = all_key_groups(SCHEMA.max_parallelism)
    backend: KeyedStateBackend = (
        HeapKeyedStateBackend(SCHEMA, whole)
        if request.param == "heap"
        else RocksDBKeyedStateBackend(SCHEMA, whole, str(tmp_path / "backend"), "test")
    )
    rows = [(user, space, item) for user in USERS for space in ("", "s") for item in ("", "x", "y")]
    keys = encoded(*map(list, zip(*rows, strict=True)))
    backend.write(backend.read("per_item", keys), "per_item", pa.array(range(len(rows)), pa.int64()))
    yield backend
    backend.close()


def encoded(users: list[str], spaces: list[str], items: list[str]) -> Ragged:
    keys = pa.array(users)
    return encode_keys(SCHEMA, PER_ITEM, keys, key_groups(SCHEMA, keys), pa.array(items), namespaces=pa.array(spaces))


def of_windows(keys: Ragged) -> Ragged:
    """Return the keys without their user keys."""
    user_keys = split_keys(SCHEMA, PER_ITEM, keys).user_keys
    assert user_keys is not None
    return gather(keys.data, keys.starts, keys.lengths - user_keys.lengths)


OF_KEYS = partial(prefixed_keys, SCHEMA, PER_ITEM)


@pytest.mark.parametrize("number", [0, 1, 7, 80])
@pytest.mark.parametrize(("prefix_of", "spaces"), [(OF_KEYS, ["", "s"]), (of_windows, ["s"])], ids=["keys", "windows"])
def test_the_keys_with_a_prefix_are_all_entries_of_their_owners(
    backend: KeyedStateBackend, prefix_of: Callable[[Ragged], Ragged], spaces: list[str], number: int
) -> None:
    """A user whose name begins with that of another one is another user. Nobody has the last prefix."""
    users = [*USERS[:number], "nobody"]
    prefixes = prefix_of(encoded(users, ["s"] * len(users), [""] * len(users)))
    keys = backend.keys_with("per_item", prefixes, prefix_of).to_list()
    expected = [(user, space, item) for user in users[:-1] for space in spaces for item in ("", "x", "y")]
    columns = map(list, zip(*expected, strict=True)) if expected else ([], [], [])
    assert sorted(keys) == sorted(encoded(*columns).to_list() if expected else [])
    assert len(backend.keys_with("empty", prefixes, prefix_of)) == 0
    assert len(backend.keys_with("per_item", from_list([]), prefix_of)) == 0


def test_rocksdb_scans_only_for_many_prefixes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Up to two entries per prefix are scanned, which is cheaper then."""
    backend = RocksDBKeyedStateBackend(SCHEMA, all_key_groups(16), str(tmp_path / "backend"), "test")
    keys = concat([encoded([user], [""], [""]) for user in USERS])
    backend.write(backend.read("per_item", keys), "per_item", pa.array(range(len(keys)), pa.int64()))
    scanned: list[str] = []
    scan = backend.scan
    monkeypatch.setattr(backend, "scan", lambda state: scanned.append(state) or scan(state))
    for number, scans in ((49, False), (50, True)):
        prefixes = OF_KEYS(keys).take(np.arange(number))
        of_prefixes = backend.keys_with("per_item", prefixes, OF_KEYS).to_list()
        assert sorted(of_prefixes) == sorted(keys.to_list()[:number])
        assert bool(scanned) == scans
    backend.close()
