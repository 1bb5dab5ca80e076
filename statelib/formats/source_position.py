"""The source position as operator state: how far the events of the source have been applied.

It is a list state with one element, a Row (start_ms, end_ms, watermark_ms). The first two are null until the first
interval has been applied. A second list state has a Row (source, table, version) per source that is read by its
commits.
"""

import pyarrow as pa

from statelib.errors import CorruptStateError
from statelib.formats.operator_state import OperatorStateContent
from statelib.model.checkpoint import DataInterval, SourcePosition
from statelib.model.operator_state import OperatorStateDescriptor, OperatorStateMode
from statelib.model.types import LONG, STRING, Field, Row
from statelib.serializers.registry import codec_of

SOURCE_POSITION = OperatorStateDescriptor(
    "statelib.source-position",
    OperatorStateMode.SPLIT_DISTRIBUTE,
    Row((Field("start_ms", LONG), Field("end_ms", LONG), Field("watermark_ms", LONG))),
)

TABLE_VERSIONS = OperatorStateDescriptor(
    "statelib.table-versions",
    OperatorStateMode.SPLIT_DISTRIBUTE,
    Row((Field("source", STRING), Field("table", STRING), Field("version", LONG))),
)
OWN_STATES = (SOURCE_POSITION.name, TABLE_VERSIONS.name)
"""The operator states that statelib itself writes. No pipeline declares them."""


def element_of(position: SourcePosition) -> dict[str, int | None]:
    """Return the position as an element of :data:`SOURCE_POSITION`. All times are epoch milliseconds."""
    interval = position.interval
    return {
        "start_ms": None if interval is None else interval.start_ms,
        "end_ms": None if interval is None else interval.end_ms,
        "watermark_ms": position.watermark_ms,
    }


def position_content(position: SourcePosition) -> OperatorStateContent:
    """Return the whole operator state, whose one element is ``position``."""
    arrow_type = codec_of(SOURCE_POSITION.value_type).arrow_type
    return OperatorStateContent(SOURCE_POSITION, pa.array([element_of(position)], arrow_type))


def position_of(content: OperatorStateContent) -> SourcePosition:
    """Return the position that the operator state holds; inverse of :func:`position_content`.

    Raise CorruptStateError (``corrupt-position``) unless it holds exactly one valid position.
    """
    rows = content.values.to_pylist()
    if len(rows) == 1:
        start, end, watermark = rows[0].values()
        if watermark is not None and (start is None) == (end is None):
            return SourcePosition(None if start is None else DataInterval(start, end), watermark)
    raise CorruptStateError(
        f"operator state {SOURCE_POSITION.name!r}: expected one position, found {rows}", kind="corrupt-position"
    )
