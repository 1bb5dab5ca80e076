"""The rows of a feed that a difference between two checkpoints leads to."""

import math

import pyarrow as pa
import pytest

from statelib.definition.frame_columns import FrameColumn
from statelib.flows.publication.changes import change_rows
from statelib.model.state import StateDescriptor, StateKind
from statelib.model.types import DOUBLE, FLOAT, STRING, Scalar


@pytest.mark.parametrize(("type_", "arrow_type"), [(DOUBLE, pa.float64()), (FLOAT, pa.float32())])
def test_a_zero_with_another_sign_is_a_change(type_: Scalar, arrow_type: pa.DataType) -> None:
    """Arrow takes them as equal, and a reader of the feed sees which one it is."""
    columns = [FrameColumn("k", STRING, "key"), FrameColumn("value", type_, "value")]
    values = [(-0.0, 0.0), (0.0, -0.0), (0.0, 0.0), (None, 0.0), (None, None), (math.nan, math.nan)]
    before, after = (pa.array(column, arrow_type) for column in zip(*values, strict=True))
    differences = pa.table({"key": list("abcdef"), "change": ["changed"] * 6, "before": before, "after": after})
    kinds, rows = change_rows(differences, StateDescriptor("total", StateKind.VALUE, type_), columns)
    assert rows["k"].to_pylist() == ["a", "b", "d"]
    assert kinds.to_pylist() == ["update"] * 3
