"""The list of all families of logical types.

A new logical type is a file that makes its ``LogicalSupport`` and one line here, besides its class in
``logical_types``, its text in ``statelib/model/sql.py`` and its serializer's class in ``snapshots``.
"""

from statelib.serializers.sql.values.arrays import ARRAY_TYPE
from statelib.serializers.sql.values.decimals import DECIMALS
from statelib.serializers.sql.values.fixed import FIXED
from statelib.serializers.sql.values.logical_support import LogicalTypes
from statelib.serializers.sql.values.maps import MAP_TYPES
from statelib.serializers.sql.values.raw import RAW_TYPE
from statelib.serializers.sql.values.rows import ROW_TYPES
from statelib.serializers.sql.values.texts import TEXTS
from statelib.serializers.sql.values.timestamps import TIMESTAMPS

LOGICAL_TYPES = LogicalTypes((FIXED, TEXTS, DECIMALS, TIMESTAMPS, ROW_TYPES, ARRAY_TYPE, MAP_TYPES, RAW_TYPE))
