"""The values of aggregates whose state holds more than their value: averages, variances and standard deviations."""

import pyarrow as pa
import pyarrow.compute as pc


def finished(agg: str, accumulators: pa.ChunkedArray) -> pa.ChunkedArray:
    """Return the value of each accumulator of ``avg``, ``variance`` or ``stddev`` as a double. It is null if there are
    too few values: none for an average, fewer than two for the others."""
    if agg == "avg":
        return _quotient(_field(accumulators, "sum"), _field(accumulators, "count"))
    others = pc.subtract(_field(accumulators, "count"), 1.0)
    variance = _quotient(_field(accumulators, "squares"), pc.max_element_wise(others, 0.0, skip_nulls=False))
    return variance if agg == "variance" else pc.sqrt(variance)


def _field(accumulators: pa.ChunkedArray, name: str) -> pa.ChunkedArray:
    return pc.struct_field(accumulators, name).cast(pa.float64())


def _quotient(total: pa.ChunkedArray, number: pa.ChunkedArray) -> pa.ChunkedArray:
    return pc.if_else(pc.equal(number, 0), None, pc.divide(total, number))
