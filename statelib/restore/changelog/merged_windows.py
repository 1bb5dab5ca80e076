"""Replay of window merges in a change log: each merge is replaced by changes of the window that it merges into.

Flink's merging windows store their contents under the namespace of one of the windows. A merge appends the contents of
other windows to it and clears them. For lists this is enough, even if some of the contents are materialised below the
log: the target's list is then described by its parts. Two reduced or aggregated values can be combined only by the
job's own function. But a window merges because a new element arrived, which is then added to the window, and adding it
logs the whole value. Source: docs/spec/formats.md#change-log; InternalMergingState of Flink.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

import numpy as np

from statelib.errors import CorruptStateError, UnsupportedError
from statelib.formats.changelog.change_set import ChangeRecords, Op
from statelib.model.state import StateDescriptor, StateKind
from statelib.serializers.columns.elements import SEPARATOR
from statelib.serializers.registry import codec_of
from statelib.wire.ragged import Ragged, from_list

MERGING = (StateKind.LIST, StateKind.REDUCING, StateKind.AGGREGATING)
Owner = tuple[int, bytes, bytes]
"""Key group, key, namespace."""
_WHOLE = (Op.SET, Op.SET_INTERNAL)
_COUNT_BYTES = 4
_Part = int | Owner
"""A record number of the log, or the owner of a value that is materialised below the log."""


@dataclass(frozen=True)
class Moved:
    """An owner and the ``parts`` of its value, at least one of which a merge moved from below the log.

    That part belonged to another owner, or it is not the first part."""

    owner: Owner
    parts: tuple[_Part, ...]

    @property
    def rows(self) -> list[int]:
        """The parts that are records of the log."""
        return [part for part in self.parts if isinstance(part, int)]

    @property
    def below(self) -> list[Owner]:
        """The parts that are materialised below the log."""
        return [part for part in self.parts if not isinstance(part, int)]


@dataclass(frozen=True)
class MovedValue:
    """A moved value in serialized form. ``target`` is the key of its entry.

    ``parts`` are pairs (lies below the log, bytes). The bytes are the key of an entry below, which may be absent, or
    else the value of the part."""

    target: bytes
    parts: tuple[tuple[bool, bytes], ...]

    def value(self, descriptor: StateDescriptor, values_below: Mapping[bytes, bytes]) -> bytes | None:
        """Return the bytes of the value, or None if no part has a value. ``values_below`` maps keys to values.

        Raise UnsupportedError (``merging-windows``) if there are two values that only the job can combine."""
        values_or_none = [values_below.get(part) if lies_below else part for lies_below, part in self.parts]
        values = [value for value in values_or_none if value is not None]
        if descriptor.kind is StateKind.LIST:
            return bytes([SEPARATOR]).join(values) if values else None
        if len(values) > 1:
            raise _unmerged(descriptor)
        return values[0] if values else None


def without_merges(
    descriptor: StateDescriptor, records: ChangeRecords, over_nothing: bool
) -> tuple[ChangeRecords, list[Moved]]:
    """Return records with the same outcome but without merges, and the values that merges moved from below the log.

    The returned records clear the old entries of moved values. ``over_nothing`` means that no state is materialised
    below the log. Raise UnsupportedError (``merging-windows``) if no new value follows a merge of two values,
    CorruptStateError (``corrupt-changelog`` and what the codecs raise)."""
    if descriptor.kind not in MERGING or not (records.ops == Op.MERGE_NS).any():
        return records, []
    replay = _Replay(descriptor, records, over_nothing)
    for row, op in enumerate(records.ops.tolist()):
        replay.step(row, op)
    return replay.outcome()


class _Replay:
    """The contents of each owner while the records of a log are replayed in order."""

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
            merged = [part for source in sources for part in self._take_content(source)]
            self._content(target).extend(merged)
        elif op == Op.CLEAR:
            self._contents[owner] = []
        elif op in _WHOLE:
            self._contents[owner] = [row]
        else:
            self._content(owner).append(row)

    def outcome(self) -> tuple[ChangeRecords, list[Moved]]:
        """Return the records per owner and the moved values. The records of an owner begin with a reset, unless its
        value below the log is still part of its contents."""
        ops: list[int] = []
        rows: list[int] = []
        owners: list[Owner] = []
        moved: list[Moved] = []
        for owner, parts in self._contents.items():
            content = Moved(owner, tuple(parts))
            if not self._is_list and len(content.rows) > 1:
                raise _unmerged(self._descriptor)
            if not self._is_plain(content):
                moved.append(content)
            for op, row in self._operations(content):
                ops.append(op)
                rows.append(row)
                owners.append(owner)
        return _records(ops, owners, self._records.arguments.take(np.maximum(np.array(rows, np.int64), 0))), moved

    def _is_plain(self, content: Moved) -> bool:
        """Return whether the contents are only records of the log, or the owner's own value below and then records."""
        if not content.below:
            return True
        return content.parts[0] == content.owner and len(content.below) == 1 and (self._is_list or not content.rows)

    def _operations(self, content: Moved) -> Iterator[tuple[int, int]]:
        """Yield (operation, number of the record that has its argument)."""
        if not self._is_plain(content):
            yield Op.CLEAR, 0
            return
        if not content.below and (self._is_list or not content.rows):
            yield Op.CLEAR, 0
        for row in content.rows:
            op = int(self._records.ops[row])
            yield Op.ADD if op in _WHOLE and self._is_list else op, row

    def _content(self, owner: Owner) -> list[_Part]:
        return self._contents.setdefault(owner, [] if self._over_nothing else [owner])

    def _take_content(self, owner: Owner) -> list[_Part]:
        parts, self._contents[owner] = self._content(owner), []
        return parts

    def _namespaces(self, row: int) -> Iterator[bytes]:
        """Yield the namespaces of a merge: the target, then the sources."""
        codec, argument = codec_of(self._descriptor.namespace_type), self._records.arguments.slice(row, row + 1)
        data, position, end = argument.data, argument.starts, argument.offsets[1:]

        def next_namespace() -> bytes:
            nonlocal position
            start, position = int(position[0]), codec.skip(data, position, end)
            return data[start : int(position[0])].tobytes()

        yield next_namespace()
        begin = int(position[0])
        count = int.from_bytes(data[begin : begin + _COUNT_BYTES].tobytes(), "big")
        if begin + _COUNT_BYTES + count > int(end[0]):
            raise self._corrupt(f"{count} windows in {int(end[0]) - begin} bytes")
        position = position + _COUNT_BYTES
        for _ in range(count):
            yield next_namespace()
        if int(position[0]) != int(end[0]):
            raise self._corrupt(f"{int(end[0] - position[0])} bytes behind the windows")

    def _corrupt(self, problem: str) -> CorruptStateError:
        return CorruptStateError(
            f"state {self._descriptor.name!r}: a merge of windows in its log has {problem}", kind="corrupt-changelog"
        )


def rows_of(records: ChangeRecords, rows: list[int]) -> ChangeRecords:
    """Return the selected records. A list that was set is returned as added, because other parts may come before it."""
    selected = np.array(rows, np.int64)
    ops = np.where(np.isin(records.ops[selected], _WHOLE), np.uint8(Op.ADD), records.ops[selected])
    return ChangeRecords(
        ops,
        records.key_groups[selected],
        records.keys.take(selected),
        records.namespaces.take(selected),
        records.arguments.take(selected),
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
