"""The ``hashCode`` of a user's key class, as a description file declares it. No file of Flink holds it."""

from dataclasses import dataclass


@dataclass(frozen=True)
class FieldsHash:
    """A hash code computed from fields: ``h = start``, then ``h = times * h + hash(field)`` for each of ``fields`` in
    this order; the hash of null is 0. The defaults are ``java.util.Objects.hash``; ``start`` 0 is
    ``31 * id + name.hashCode()``."""

    fields: tuple[str, ...]
    times: int = 31
    start: int = 1
