"""Retractions: events that take earlier events back, for the aggregates whose accumulators can be subtracted."""

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from statelib.aggregates.accumulators import LONG_DIGITS, accumulator_of, sum_overflow
from statelib.aggregates.folding import Folding
from statelib.aggregates.grouping import Grouping, one_array
from statelib.aggregates.kinds import RETRACTABLE, WHOLE, AggregateSpec
from statelib.errors import InvalidRequestError
from statelib.functions.change_logs.changes import APPLIED, CHANGE, RETRACTED
from statelib.model.sql import MAX_DIGITS
from statelib.model.types import Decimal

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


def exact_sums(folding: Folding) -> Folding:
    """Return the folding with decimals in place of the longs in sums of whole numbers. What is applied to a key in an
    interval may exceed a long, although what remains after the retractions does not."""
    return replace(folding, fields=tuple((name, _exact(spec)) for name, spec in folding.fields))


def _exact(spec: AggregateSpec) -> AggregateSpec:
    whole = spec.agg == "sum" and str(spec.of_required[1]) in WHOLE
    return replace(spec, of=(spec.column, Decimal(*LONG_DIGITS))) if whole else spec


def net(
    folding: Folding, before: Sequence[pa.Array], applied: Sequence[pa.Array], retracted: Sequence[pa.Array]
) -> list[pa.Array]:
    """Return the accumulators ``before``, merged with the partial ones of applied events, after those of retracted
    events are subtracted. Both partial ones are those of :func:`exact_sums`.

    Raise as :func:`without`, and InvalidRequestError (``sum-overflow``)."""
    exact, accumulators = exact_sums(folding), list(before)
    for i, ((_, spec), (_, exact_spec)) in enumerate(zip(folding.fields, exact.fields, strict=True)):
        if exact_spec is not spec:
            accumulators[i] = accumulators[i].cast(pa.decimal128(MAX_DIGITS, 0))
    accumulators = exact.merged(accumulators, applied)
    for i, (name, spec) in enumerate(folding.fields):
        with folding.named(name):
            subtracted = without(spec, accumulators[i], retracted[i])
            try:
                accumulators[i] = subtracted.cast(before[i].type)
            except pa.ArrowInvalid as error:
                raise sum_overflow(spec) from error
    return accumulators


def countable(
    folding: Folding, present: pa.BooleanArray, before: Sequence[pa.Array], partials: Sequence[pa.Array]
) -> list[pa.Array]:
    """Return partial accumulators of a change log for entries with the accumulators ``before``, with null for the
    counts that must not go on. ``present``: which entries exist.

    The count of an entry is null if its field was added later. How many rows the entry has is unknown, so it must not
    begin at 0: the first row that is taken back would end the entry, or would be one too many. It stays null."""
    counted = list(partials)
    for i, (_, spec) in enumerate(folding.fields):
        unknown = pc.and_(present, before[i].is_null())
        if spec.agg == "count" and pc.any(unknown).as_py():
            counted[i] = pc.if_else(unknown, pa.scalar(None, counted[i].type), counted[i])
    return counted


def without(spec: AggregateSpec, accumulators: pa.Array, retracted: pa.Array) -> pa.Array:
    """Return the accumulators after the retracted ones are subtracted. An average or a histogram without values is
    null. An aggregate that cannot subtract is unchanged: its column is null in every retracted event.

    Raise InvalidRequestError: ``retracted-too-often`` if fewer values were applied than are retracted,
    ``sum-not-finite`` if a sum of doubles is infinite or NaN, because nothing can be taken back from that."""
    if spec.agg not in RETRACTABLE:
        return accumulators
    result = accumulator_of(spec).merge(accumulators, _negated(retracted.cast(accumulators.type)))
    _check_finite(spec, result, retracted)
    counts = _counts(spec, result)
    if counts is not None and (pc.min(counts).as_py() or 0) < 0:
        raise InvalidRequestError(
            f"{spec.agg}: {-pc.min(counts).as_py()} more values of one key are taken back than were applied to it",
            kind="retracted-too-often",
            hint="the changes of the source must begin with all rows, such as Debezium's snapshot, and each must have "
            "the row before it whole, such as with PostgreSQL's REPLICA IDENTITY FULL; a state that was added later "
            "has no earlier rows: replay all intervals in a pipeline of another name, or seed one",
        )
    if spec.agg == "avg":
        return pc.if_else(pc.equal(counts, 0), pa.scalar(None, result.type), result)
    return result


def _check_finite(spec: AggregateSpec, result: pa.Array, retracted: pa.Array) -> None:
    if spec.agg not in ("sum", "avg"):
        return
    sums = result.field("sum") if spec.agg == "avg" else result
    if not pa.types.is_floating(sums.type):
        return
    wrong = pc.and_(pc.invert(pc.is_finite(sums)), retracted.is_valid())
    if pc.any(wrong).as_py():
        raise InvalidRequestError(
            f"{spec.agg} of {spec.column}: a value of a change log is taken back from a sum that is infinite or not a "
            "number",
            kind="sum-not-finite",
            hint=f"leave such values out, such as with expr: \"nullif({spec.column}, double('Infinity'))\", or declare "
            "the column as a decimal; then replay in a pipeline of another name",
        )


def emptied(fields: Sequence[tuple[str | None, AggregateSpec]], values: Sequence[pa.Array]) -> npt.NDArray[np.bool_]:
    """Return which entries are removed after a retraction: those of which a ``count`` of all events is 0, and a single
    accumulator that is null."""
    empty = np.zeros(len(values[0]), np.bool_)
    for (name, spec), column in zip(fields, values, strict=True):
        if spec.agg == "count" and spec.of is None and not spec.where:
            empty |= pc.equal(column, 0).fill_null(False).to_numpy(zero_copy_only=False)
        if name is None:
            empty |= column.is_null().to_numpy(zero_copy_only=False)
    return empty


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
