"""What a description says of the ``hashCode`` of a key's class, which no file of Flink holds."""

from dataclasses import dataclass


@dataclass(frozen=True)
class FieldsHash:
    """``h = start``, then ``h = times * h + hash(field)`` for each of ``fields`` in this order, null as 0:
    ``java.util.Objects.hash`` with the defaults, ``31 * id + name.hashCode()`` with a start of 0."""

    fields: tuple[str, ...]
    times: int = 31
    start: int = 1
