"""Retractions: events that take earlier events back, for the aggregates whose accumulators can be subtracted."""

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from statelib.aggregates.accumulators import accumulator_of
from statelib.aggregates.grouping import Grouping, one_array
from statelib.aggregates.kinds import RETRACTABLE, AggregateSpec
from statelib.errors import InvalidRequestError
from statelib.functions.change_logs.changes import APPLIED, CHANGE, RETRACTED

Part = tuple[pa.Table, Grouping]


def divided(events: pa.Table, grouping: Grouping) -> tuple[Part, Part | None]:
    """Return the events that are applied and those that are retracted, with their groups, whose numbers are unchanged;
    None if no event is retracted."""
    if CHANGE not in events.column_names:
        return (events, grouping), None
    is_retracted = one_array(events[CHANGE]).fill_null(APPLIED).to_numpy() == RETRACTED
    events = events.drop_columns([CHANGE])
    if not is_retracted.any():
        return (events, grouping), None
    applied, retracted = (
        (events.take(pa.array(rows)), Grouping(grouping.codes[rows], grouping.first))
        for rows in (np.flatnonzero(~is_retracted), np.flatnonzero(is_retracted))
    )
    return applied, retracted


def without(spec: AggregateSpec, accumulators: pa.Array, retracted: pa.Array) -> pa.Array:
    """Return the accumulators after the retracted ones are subtracted. An average or a histogram without values is
    null. An aggregate that cannot subtract is unchanged: its column is null in every retracted event.

    Raise InvalidRequestError (``retracted-too-often``) if fewer values were applied than are retracted."""
    if spec.agg not in RETRACTABLE:
        return accumulators
    result = accumulators
    for part in _parts(retracted.cast(accumulators.type)):
        result = accumulator_of(spec).merge(result, _negated(part))
    counts = _counts(spec, result)
    if counts is not None and (pc.min(counts).as_py() or 0) < 0:
        raise InvalidRequestError(
            f"{spec.agg}: {-pc.min(counts).as_py()} more values of one key are taken back than were applied to it",
            kind="retracted-too-often",
            hint="the changes of the source must begin with all rows, such as Debezium's snapshot, and each must have "
            "the row before it whole, such as with PostgreSQL's REPLICA IDENTITY FULL",
        )
    if spec.agg == "avg":
        return pc.if_else(pc.equal(counts, 0), pa.scalar(None, result.type), result)
    return result


def emptied(fields: Sequence[tuple[str | None, AggregateSpec]], values: Sequence[pa.Array]) -> npt.NDArray[np.bool_]:
    """Return which entries are removed after a retraction: those of which a ``count`` of all events is 0, and a single
    accumulator that is null."""
    empty = np.zeros(len(values[0]), np.bool_)
    for (name, spec), column in zip(fields, values, strict=True):
        if spec.agg == "count" and spec.of is None and not spec.where:
            empty |= column.fill_null(0).to_numpy(zero_copy_only=False) == 0
        if name is None:
            empty |= column.is_null().to_numpy(zero_copy_only=False)
    return empty


def _parts(accumulators: pa.Array) -> list[pa.Array]:
    """Return accumulators with the sum of ``accumulators`` whose numbers can be negated, as the least long cannot."""
    if not pa.types.is_integer(accumulators.type):
        return [accumulators]
    half = pc.divide(accumulators, 2)
    return [half, pc.subtract(accumulators, half)]


def _negated(accumulators: pa.Array) -> pa.Array:
    """Return the accumulators with every number in them negated."""
    type_ = accumulators.type
    if pa.types.is_struct(type_):
        fields = [_negated(field) for field in accumulators.flatten()]
        return pa.StructArray.from_arrays(fields, fields=list(type_), mask=accumulators.is_null())
    if pa.types.is_list(type_):
        numbers = _negated(accumulators.flatten())
        offsets = np.zeros(len(accumulators) + 1, np.int32)
        np.cumsum(accumulators.value_lengths().fill_null(0).to_numpy(zero_copy_only=False), out=offsets[1:])
        return pa.ListArray.from_arrays(pa.array(offsets), numbers, mask=accumulators.is_null()).cast(type_)
    return (pc.negate if pa.types.is_decimal(type_) else pc.negate_checked)(accumulators)


def _counts(spec: AggregateSpec, accumulators: pa.Array) -> pa.Array | None:
    """Return the numbers of values in the accumulators, None for a sum, which has none."""
    match spec.agg:
        case "avg":
            return accumulators.field("count")
        case "histogram":
            return accumulators.flatten()
    return accumulators if spec.agg == "count" else None
