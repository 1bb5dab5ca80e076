"""How far the source has been applied, as an ordinary operator list state with one element.

A Row (start_ms, end_ms, watermark_ms), the first two null before the first interval.
"""

import pyarrow as pa

from statelib.errors import CorruptStateError
from statelib.formats.operator_state import OperatorStateContent
from statelib.model.checkpoint import DataInterval, SourcePosition
from statelib.model.operator_state import OperatorStateDescriptor, OperatorStateMode
from statelib.model.types import LONG, Field, Row
from statelib.serializers.registry import codec_of

SOURCE_POSITION = OperatorStateDescriptor(
    "statelib.source-position",
    OperatorStateMode.SPLIT_DISTRIBUTE,
    Row((Field("start_ms", LONG), Field("end_ms", LONG), Field("watermark_ms", LONG))),
)


def element_of(position: SourcePosition) -> dict[str, int | None]:
    """The position as an element of that state."""
    interval = position.interval
    return {
        "start_ms": None if interval is None else interval.start_ms,
        "end_ms": None if interval is None else interval.end_ms,
        "watermark_ms": position.watermark_ms,
    }


def position_content(position: SourcePosition) -> OperatorStateContent:
    """The whole state."""
    arrow_type = codec_of(SOURCE_POSITION.value_type).arrow_type
    return OperatorStateContent(SOURCE_POSITION, pa.array([element_of(position)], arrow_type))


def position_of(content: OperatorStateContent) -> SourcePosition:
    """The inverse of :func:`position_content`; CorruptStateError (``corrupt-position``)."""
    rows = content.values.to_pylist()
    if len(rows) == 1:
        start, end, watermark = rows[0].values()
        if watermark is not None and (start is None) == (end is None):
            return SourcePosition(None if start is None else DataInterval(start, end), watermark)
    raise CorruptStateError(
        f"operator state {SOURCE_POSITION.name!r}: expected one position, found {rows}", kind="corrupt-position"
    )
