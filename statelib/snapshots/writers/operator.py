"""The writer of operator state for a savepoint that no job took. The state is distributed to subtasks as in Flink.

Source: docs/spec/formats.md#operator-state (list and union state are the concatenation of the elements of all subtasks;
each subtask has a copy of the broadcast state).
"""

from collections.abc import Sequence
from dataclasses import replace

import pyarrow as pa

from statelib.errors import InvalidRequestError
from statelib.formats.operator_state import OperatorStateContent, encode_operator_state
from statelib.model.handles import OperatorStreamStateHandle
from statelib.model.operator_state import OperatorStateMode
from statelib.snapshots.uploads.streams import Uploads


def write_operator_states(
    uploads: Uploads, contents: Sequence[OperatorStateContent], parallelism: int
) -> list[OperatorStreamStateHandle]:
    """Write the operator state of all subtasks and return one handle per subtask, in their order.

    Args:
        uploads: The streams of the savepoint.
        contents: The elements of all states.
        parallelism: The number of subtasks.

    Raises:
        InvalidRequestError: ``duplicate-state``, ``duplicate-key`` in broadcast state, ``null-value``.
    """
    names = [content.descriptor.name for content in contents]
    if len(set(names)) != len(names):
        raise InvalidRequestError(f"operator states {names}: expected each name once", kind="duplicate-state")
    for content in contents:
        _check_distinct(content)
    handles = []
    for subtask in range(parallelism):
        data, offsets = encode_operator_state([_part_of_subtask(content, subtask, parallelism) for content in contents])
        handles.append(OperatorStreamStateHandle(offsets, uploads.write_pieces([data]).handle))
    return handles


def _part_of_subtask(content: OperatorStateContent, subtask: int, parallelism: int) -> OperatorStateContent:
    """Return the elements of one state that belong to ``subtask``.

    A broadcast state gives all its elements to each subtask, and any other state an equal share of them."""
    if content.descriptor.mode is OperatorStateMode.BROADCAST:
        return content
    start, stop = (len(content) * i // parallelism for i in (subtask, subtask + 1))
    return replace(content, values=content.values.slice(start, stop - start))


def _check_distinct(content: OperatorStateContent) -> None:
    """Raise InvalidRequestError (``duplicate-key``) if a key of a broadcast state occurs twice.

    Nested keys are not checked."""
    if content.keys is None or pa.types.is_nested(content.keys.type):
        return
    if len(content.keys.unique()) != len(content.keys):
        raise InvalidRequestError(
            f"broadcast state {content.descriptor.name!r}: a key is there twice", kind="duplicate-key"
        )
