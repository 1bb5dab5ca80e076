"""Operator state of a savepoint that is made by hand: spread over subtasks as Flink would hold it.

Source: flink-formats.md section 7.2 (list state is the concatenation over the subtasks, union state too, of broadcast
state every subtask has a copy).
"""

from collections.abc import Sequence
from dataclasses import replace

import pyarrow as pa

from statelib.errors import InvalidRequestError
from statelib.formats.operator_state import OperatorStateContent, encode_operator_state
from statelib.model.handles import OperatorStreamStateHandle
from statelib.model.operator_state import OperatorStateMode
from statelib.snapshots.uploads import Uploads


def write_operator_states(
    uploads: Uploads, contents: Sequence[OperatorStateContent], parallelism: int
) -> list[OperatorStreamStateHandle]:
    """One handle a subtask, in their order.

    Raises InvalidRequestError (``duplicate-state``, ``duplicate-key`` in broadcast state, ``null-value``)."""
    names = [content.descriptor.name for content in contents]
    if len(set(names)) != len(names):
        raise InvalidRequestError(f"operator states {names}: expected each name once", kind="duplicate-state")
    for content in contents:
        _check_distinct(content)
    handles = []
    for subtask in range(parallelism):
        data, offsets = encode_operator_state([_part(content, subtask, parallelism) for content in contents])
        handles.append(OperatorStreamStateHandle(offsets, uploads.write_pieces([data]).handle))
    return handles


def _part(content: OperatorStateContent, subtask: int, parallelism: int) -> OperatorStateContent:
    if content.descriptor.mode is OperatorStateMode.BROADCAST:
        return content
    start, stop = (len(content) * i // parallelism for i in (subtask, subtask + 1))
    return replace(content, values=content.values.slice(start, stop - start))


def _check_distinct(content: OperatorStateContent) -> None:
    if content.keys is None or pa.types.is_nested(content.keys.type):
        return
    if len(content.keys.unique()) != len(content.keys):
        raise InvalidRequestError(
            f"broadcast state {content.descriptor.name!r}: a key is there twice", kind="duplicate-key"
        )
