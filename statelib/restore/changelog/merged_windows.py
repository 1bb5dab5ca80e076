"""Merges of windows in a log, replayed: what a merge moved is then told as if it had been logged at its target.

Flink's merging windows keep their contents under the namespace of one of the windows; a merge adds the contents of
others to it and clears these. Of lists that is all there is to it, also where some of it lies below the log: then the
target's list is told by its parts. Of a reduced or an aggregated value only the job's own function knows what two make
together; but a window merges because an element came, which is then added to it, and that logs the value as a whole.
Source: flink-formats.md section 9; InternalMergingState of Flink.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

import numpy as np

from statelib.errors import CorruptStateError, UnsupportedError
from statelib.formats.changelog.change_set import ChangeRecords, Op
from statelib.model.state import StateDescriptor, StateKind
from statelib.serializers.registry import codec_of
from statelib.serializers.walks import SEPARATOR
from statelib.wire.ragged import Ragged, from_list

MERGING = (StateKind.LIST, StateKind.REDUCING, StateKind.AGGREGATING)
Owner = tuple[int, bytes, bytes]
"""Key group, key, namespace."""
_WHOLE = (Op.SET, Op.SET_INTERNAL)
_COUNT_BYTES = 4
_Part = int | Owner
"""A record of the log, or what lies below it under that owner."""


@dataclass(frozen=True)
class Moved:
    """An owner and the ``parts`` of its value: of those that are moved, one at least lies below the log, under another
    owner or not at the front."""

    owner: Owner
    parts: tuple[_Part, ...]

    @property
    def rows(self) -> list[int]:
        return [part for part in self.parts if isinstance(part, int)]

    @property
    def below(self) -> list[Owner]:
        return [part for part in self.parts if not isinstance(part, int)]


@dataclass(frozen=True)
class MovedValue:
    """The same as entries have it: the serialized key ``target``, and of each part the bytes of its value, or, where it
    ``lies_below``, the key under which it is found there, if it is."""

    target: bytes
    parts: tuple[tuple[bool, bytes], ...]

    def value(self, descriptor: StateDescriptor, found: Mapping[bytes, bytes]) -> bytes | None:
        """Its bytes, given the values ``found`` below by their keys; None where it has none.

        Raises UnsupportedError (``merging-windows``) for two values that only the job could make one."""
        there = [found.get(part) if lies_below else part for lies_below, part in self.parts]
        values = [value for value in there if value is not None]
        if descriptor.kind is StateKind.LIST:
            return bytes([SEPARATOR]).join(values) if values else None
        if len(values) > 1:
            raise _unmerged(descriptor)
        return values[0] if values else None


def without_merges(
    descriptor: StateDescriptor, records: ChangeRecords, over_nothing: bool
) -> tuple[ChangeRecords, list[Moved]]:
    """The same outcome with no merge among the operations, and what the merges made of values below the log: the
    records clear these. ``over_nothing``: nothing lies below the log.

    Raises UnsupportedError (``merging-windows``) where two values were not followed by a new one; CorruptStateError
    (``corrupt-changelog`` and what the codecs raise)."""
    if descriptor.kind not in MERGING or not (records.ops == Op.MERGE_NS).any():
        return records, []
    replay = _Replay(descriptor, records, over_nothing)
    for row, op in enumerate(records.ops.tolist()):
        replay.step(row, op)
    return replay.outcome()


class _Replay:
    def __init__(self, descriptor: StateDescriptor, records: ChangeRecords, over_nothing: bool) -> None:
        self._descriptor = descriptor
        self._is_list = descriptor.kind is StateKind.LIST
        self._records = records
        self._over_nothing = over_nothing
        self._owners = list(
            zip(records.key_groups.tolist(), records.keys.to_list(), records.namespaces.to_list(), strict=True)
        )
        self._contents: dict[Owner, list[_Part]] = {}

    def step(self, row: int, op: int) -> None:
        owner = self._owners[row]
        if op == Op.MERGE_NS:
            group, key, _ = owner
            target, *sources = ((group, key, namespace) for namespace in self._namespaces(row))
            merged = [part for source in sources for part in self._taken(source)]
            self._content(target).extend(merged)
        elif op == Op.CLEAR:
            self._contents[owner] = []
        elif op in _WHOLE:
            self._contents[owner] = [row]
        else:
            self._content(owner).append(row)

    def outcome(self) -> tuple[ChangeRecords, list[Moved]]:
        """Of each owner that the log knows: a reset, unless below counts, and its records; and what was moved."""
        ops: list[int] = []
        rows: list[int] = []
        owners: list[Owner] = []
        moved: list[Moved] = []
        for owner, parts in self._contents.items():
            found = Moved(owner, tuple(parts))
            if not self._is_list and len(found.rows) > 1:
                raise _unmerged(self._descriptor)
            if not self._is_plain(found):
                moved.append(found)
            for op, row in self._told(found):
                ops.append(op)
                rows.append(row)
                owners.append(owner)
        return _records(ops, owners, self._records.arguments.take(np.maximum(np.array(rows, np.int64), 0))), moved

    def _is_plain(self, found: Moved) -> bool:
        """Whether only records stand behind what was there before, if that counts."""
        if not found.below:
            return True
        return found.parts[0] == found.owner and len(found.below) == 1 and (self._is_list or not found.rows)

    def _told(self, found: Moved) -> Iterator[tuple[int, int]]:
        """(operation, record whose argument it has)."""
        if not self._is_plain(found):
            yield Op.CLEAR, 0
            return
        if not found.below and (self._is_list or not found.rows):
            yield Op.CLEAR, 0
        for row in found.rows:
            op = int(self._records.ops[row])
            yield Op.ADD if op in _WHOLE and self._is_list else op, row

    def _content(self, owner: Owner) -> list[_Part]:
        return self._contents.setdefault(owner, [] if self._over_nothing else [owner])

    def _taken(self, owner: Owner) -> list[_Part]:
        found, self._contents[owner] = self._content(owner), []
        return found

    def _namespaces(self, row: int) -> Iterator[bytes]:
        """Target and sources."""
        codec, argument = codec_of(self._descriptor.namespace_type), self._records.arguments.slice(row, row + 1)
        data, at, end = argument.data, argument.starts, argument.offsets[1:]

        def one() -> bytes:
            nonlocal at
            start, at = int(at[0]), codec.skip(data, at, end)
            return data[start : int(at[0])].tobytes()

        yield one()
        begin = int(at[0])
        count = int.from_bytes(data[begin : begin + _COUNT_BYTES].tobytes(), "big")
        if begin + _COUNT_BYTES + count > int(end[0]):
            raise self._corrupt(f"{count} windows in {int(end[0]) - begin} bytes")
        at = at + _COUNT_BYTES
        for _ in range(count):
            yield one()
        if int(at[0]) != int(end[0]):
            raise self._corrupt(f"{int(end[0] - at[0])} bytes behind the windows")

    def _corrupt(self, problem: str) -> CorruptStateError:
        return CorruptStateError(
            f"state {self._descriptor.name!r}: a merge of windows in its log has {problem}", kind="corrupt-changelog"
        )


def rows_of(records: ChangeRecords, rows: list[int]) -> ChangeRecords:
    """Those records, lists that were put as a whole as if they had been added: where they stand, others follow."""
    at = np.array(rows, np.int64)
    ops = np.where(np.isin(records.ops[at], _WHOLE), np.uint8(Op.ADD), records.ops[at])
    return ChangeRecords(
        ops,
        records.key_groups[at],
        records.keys.take(at),
        records.namespaces.take(at),
        records.arguments.take(at),
    )


def _records(ops: list[int], owners: list[Owner], arguments: Ragged) -> ChangeRecords:
    return ChangeRecords(
        np.array(ops, np.uint8),
        np.array([group for group, _, _ in owners], np.int32),
        from_list([key for _, key, _ in owners]),
        from_list([namespace for _, _, namespace in owners]),
        arguments,
    )


def _unmerged(descriptor: StateDescriptor) -> UnsupportedError:
    return UnsupportedError(
        f"state {descriptor.name!r}: its log merges windows, and one that was merged has no new value",
        kind="merging-windows",
        hint="take a canonical savepoint with Flink",
    )
