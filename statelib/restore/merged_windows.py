"""Merges of windows in a log, replayed: what a merge moved is then told as if it had been logged at its target.

Flink's merging windows keep their contents under the namespace of one of the windows; a merge adds the contents of
others to it and clears these. Of lists that is all there is to it. Of a reduced or an aggregated value only the job's
own function knows what two make together; but a window merges because an element came, which is then added to it,
and that logs the value as a whole. Source: flink-formats.md section 9; InternalMergingState of Flink.
"""

from collections.abc import Iterator
from dataclasses import dataclass, field, replace

import numpy as np

from statelib.errors import CorruptStateError, UnsupportedError
from statelib.formats.change_set import ChangeRecords, Op
from statelib.model.state import StateDescriptor, StateKind
from statelib.serializers.registry import codec_of
from statelib.wire.ragged import from_list

MERGING = (StateKind.LIST, StateKind.REDUCING, StateKind.AGGREGATING)
_Owner = tuple[int, bytes, bytes]
"""Key group, key, namespace."""
_WHOLE = (Op.SET, Op.SET_INTERNAL)
_COUNT_BYTES = 4


@dataclass
class _Content:
    """``known``: whether nothing below counts any more. ``rows``: the records that make it up, in order; of a value
    the last one alone. ``unmerged``: it is of two values that only the job could make one."""

    known: bool
    rows: list[int] = field(default_factory=list)
    unmerged: bool = False


def without_merges(descriptor: StateDescriptor, records: ChangeRecords, over_nothing: bool) -> ChangeRecords:
    """The same outcome with no merge among the operations. ``over_nothing``: nothing lies below the log.

    Raises UnsupportedError (``merging-windows``) where what lies below was merged, or two values that were not
    followed by a new one; CorruptStateError (``corrupt-changelog`` and what the codecs raise)."""
    if descriptor.kind not in MERGING or not (records.ops == Op.MERGE_NS).any():
        return records
    replay = _Replay(descriptor, records, over_nothing)
    for row, op in enumerate(records.ops.tolist()):
        replay.step(row, op)
    return replay.outcome()


class _Replay:
    def __init__(self, descriptor: StateDescriptor, records: ChangeRecords, over_nothing: bool) -> None:
        self._descriptor = descriptor
        self._records = records
        self._over_nothing = over_nothing
        self._owners = list(
            zip(records.key_groups.tolist(), records.keys.to_list(), records.namespaces.to_list(), strict=True)
        )
        self._contents: dict[_Owner, _Content] = {}

    def step(self, row: int, op: int) -> None:
        owner = self._owners[row]
        if op == Op.MERGE_NS:
            group, key, _ = owner
            target, *sources = ((group, key, namespace) for namespace in self._namespaces(row))
            self._merge(target, sources)
        elif op == Op.CLEAR:
            self._contents[owner] = _Content(True)
        elif op in _WHOLE:
            self._contents[owner] = _Content(True, [row])
        else:
            self._content(owner).rows.append(row)

    def outcome(self) -> ChangeRecords:
        """Of each owner that the log knows: a reset, unless below counts, and its records."""
        ops: list[int] = []
        rows: list[int] = []
        owners: list[_Owner] = []
        for owner, content in self._contents.items():
            if content.unmerged:
                raise self._refused("a window that was merged has no new value")
            for op, row in self._told(content):
                ops.append(op)
                rows.append(row)
                owners.append(owner)
        arguments = self._records.arguments.take(np.maximum(np.array(rows, np.int64), 0))
        return ChangeRecords(
            np.array(ops, np.uint8),
            np.array([group for group, _, _ in owners], np.int32),
            from_list([key for _, key, _ in owners]),
            from_list([namespace for _, _, namespace in owners]),
            arguments,
        )

    def _told(self, content: _Content) -> Iterator[tuple[int, int]]:
        """(operation, record whose argument it has)."""
        if content.known and (self._descriptor.kind is StateKind.LIST or not content.rows):
            yield Op.CLEAR, 0
        for row in content.rows:
            op = int(self._records.ops[row])
            yield Op.ADD if op in _WHOLE and self._descriptor.kind is StateKind.LIST else op, row

    def _content(self, owner: _Owner) -> _Content:
        return self._contents.setdefault(owner, _Content(self._over_nothing))

    def _merge(self, target: _Owner, sources: list[_Owner]) -> None:
        merged = []
        for source in sources:
            merged.append(self._content(source))
            self._contents[source] = _Content(True)
        held = self._content(target)
        if self._descriptor.kind is StateKind.LIST:
            if not all(content.known for content in merged):
                raise self._refused("what it merges lies in part below it")
            rows = [row for content in merged for row in content.rows]
            self._contents[target] = replace(held, rows=held.rows + rows)
            return
        there = [content for content in (held, *merged) if content.rows or content.unmerged or not content.known]
        if len(there) == 1 and there[0].known:
            self._contents[target] = there[0]
        elif there:
            self._contents[target] = _Content(True, unmerged=True)

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

    def _refused(self, problem: str) -> UnsupportedError:
        return UnsupportedError(
            f"state {self._descriptor.name!r}: its log merges windows, and {problem}",
            kind="merging-windows",
            hint="take a canonical savepoint with Flink",
        )
