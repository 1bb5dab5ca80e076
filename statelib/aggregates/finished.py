"""The values of aggregates whose state holds more than their value: averages, variances and standard deviations."""

from decimal import Context, Decimal

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from statelib.aggregates.grouping import one_array
from statelib.errors import InvalidRequestError
from statelib.model.sql import MAX_DIGITS
from statelib.serializers.columns.arrow import with_nulls
from statelib.serializers.columns.decimal_words import decimal_array, decimal_words

_AVERAGE_SCALE = 6
_EXACT = Context(prec=2 * MAX_DIGITS)
_LONG_LIMIT = 2**63


def finished(agg: str, accumulators: pa.ChunkedArray) -> pa.ChunkedArray:
    """Return the value of each accumulator of ``avg``, ``variance`` or ``stddev`` as a double; the average of decimals
    is a decimal. It is null if there are too few values: none for an average, fewer than two for the others."""
    if agg == "avg" and pa.types.is_decimal(accumulators.type.field("sum").type):
        return _decimal_averages(one_array(accumulators))
    if agg == "avg":
        return _quotient(_field(accumulators, "sum"), _field(accumulators, "count"))
    others = pc.subtract(_field(accumulators, "count"), 1.0)
    variance = _quotient(_field(accumulators, "squares"), pc.max_element_wise(others, 0.0, skip_nulls=False))
    return variance if agg == "variance" else pc.sqrt(variance)


def _decimal_averages(accumulators: pa.StructArray) -> pa.ChunkedArray:
    """Return the averages in 38 digits, at least 6 of them after the point, rounded half up, as Flink's AVG does. Raise
    InvalidRequestError (``sum-overflow``) if an average has more digits.

    They are computed with whole numbers, because Arrow's division of decimals is wrong for some of them."""
    counted = accumulators.filter(pc.greater(pc.struct_field(accumulators, "count"), 0))
    sums, counts = counted.field("sum"), counted.field("count")
    scale = max(sums.type.scale, _AVERAGE_SCALE)
    type_, factor = pa.decimal128(MAX_DIGITS, scale), 10 ** (scale - sums.type.scale)
    words = decimal_words(sums)
    least, most = (int(end(words[:, 0], initial=0)) for end in (np.min, np.max))
    if (words[:, 1] == words[:, 0] >> 63).all() and max(most, -least) * factor < _LONG_LIMIT:
        averages = _rounded_quotients(words[:, 0] * factor, counts.to_numpy(), type_)
    else:
        averages = _large_averages(sums, counts, type_)
    return pa.chunked_array([with_nulls(averages, _is_counted(accumulators))])


def _is_counted(accumulators: pa.StructArray) -> npt.NDArray[np.bool_]:
    counts = pc.struct_field(accumulators, "count").fill_null(0)
    return np.asarray(counts.to_numpy(zero_copy_only=False) > 0, np.bool_)


def _rounded_quotients(
    totals: npt.NDArray[np.int64], counts: npt.NDArray[np.int64], type_: pa.Decimal128Type
) -> pa.Array:
    whole, rest = np.divmod(np.abs(totals), counts)
    quotients = np.sign(totals) * (whole + (rest >= counts - rest))
    return decimal_array(np.stack([quotients, quotients >> 63], axis=1), type_)


def _large_averages(sums: pa.Array, counts: pa.Array, type_: pa.Decimal128Type) -> pa.Array:
    """Return the averages of sums that are too large for a long."""
    pairs = zip(sums.to_pylist(), counts.to_pylist(), strict=True)
    try:
        return pa.array([_average(total, count, type_.scale) for total, count in pairs], type_)
    except pa.ArrowInvalid:
        raise InvalidRequestError(
            f"average of decimals: expected at most {MAX_DIGITS} digits, {type_.scale} of them after the point, found "
            "more",
            kind="sum-overflow",
            hint="add fields with the sum and the count, or with the average of a column that is a double",
        ) from None


def _average(total: Decimal, count: int, scale: int) -> Decimal:
    unscaled = int(total.scaleb(scale, _EXACT))
    whole, rest = divmod(abs(unscaled), count)
    quotient = whole + (2 * rest >= count)
    return Decimal(quotient if unscaled >= 0 else -quotient).scaleb(-scale, _EXACT)


def _field(accumulators: pa.ChunkedArray, name: str) -> pa.ChunkedArray:
    return pc.struct_field(accumulators, name).cast(pa.float64())


def _quotient(total: pa.ChunkedArray, number: pa.ChunkedArray) -> pa.ChunkedArray:
    return pc.if_else(pc.equal(number, 0), None, pc.divide(total, number))
