"""Internal values of Flink SQL: ``values`` has one file per family of logical types.

The types themselves are read and written as Java objects by ``logical_types``, as text by ``text``, and as serializer
snapshots by ``snapshots``. ``sql_type`` puts everything together for the registry.
"""
