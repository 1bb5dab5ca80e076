"""The parts of a snapshot's keyed state: its streams with their roles, and the number of entries per key group."""

from collections.abc import Iterator
from dataclasses import dataclass, fields, is_dataclass

import numpy as np
import numpy.typing as npt

from statelib.model.handles import (
    ChangelogStateBackendHandleImpl,
    IncrementalRemoteKeyedStateHandle,
    KeyedStateHandle,
    KeyGroupsSavepointStateHandle,
    StreamStateHandle,
    log_streams,
    materialized_parts,
)
from statelib.model.types import Opaque
from statelib.savepoints.opened import Checkpoint
from statelib.savepoints.verification.stored_content import read_content

Entries = npt.NDArray[np.int64]
"""The number of entries per state (row) and key group (column)."""


@dataclass(frozen=True)
class Amounts:
    """The amounts of an operator's keyed state: ``entries`` per state and key group, and ``keys``, the number of
    distinct keys. A field is None if its amount is neither recorded nor counted."""

    entries: Entries | None
    keys: int | None


@dataclass(frozen=True)
class Stream:
    """A stream that a handle refers to. ``role``: the kind of data in it, such as ``canonical`` or ``change log``."""

    role: str
    handle: StreamStateHandle


def amounts_of(part: Checkpoint, *, counted: bool = False, scratch: str | None = None) -> Amounts:
    """Return the amounts of the selected operator's keyed state. They come from the manifest, which does not
    have them while there are open deltas; with ``counted``, all entries are read and counted instead, with ``scratch``
    as the directory for temporary copies.

    With ``counted``, raises what reading a snapshot raises, such as CorruptStateError and NotFoundError."""
    statistics, keys = None, None
    if counted:
        content = read_content(part, scratch)
        statistics, keys = content.statistics, None if content.keys is None else content.keys.total
    elif part.manifest and not part.manifest.deltas:
        statistics, keys = part.manifest.statistics, part.manifest.total_keys
    if not statistics:
        return Amounts(None, keys)
    return Amounts(np.stack([s.entries for s in statistics]).astype(np.int64), keys)


def streams_of(handle: KeyedStateHandle) -> Iterator[Stream]:
    """Yield every stream of a handle, in the order in which a reader needs them."""
    for part in materialized_parts(handle):
        if isinstance(part, IncrementalRemoteKeyedStateHandle):
            yield Stream("RocksDB meta", part.meta)
            yield from (Stream(f"RocksDB shared {name}", stream) for name, stream in part.shared)
            yield from (Stream(f"RocksDB private {name}", stream) for name, stream in part.private)
        elif isinstance(part, KeyGroupsSavepointStateHandle):
            yield Stream("canonical", part.stream)
        else:
            yield Stream("heap", part.stream)
    if isinstance(handle, ChangelogStateBackendHandleImpl):
        yield from (Stream("change log", stream) for stream in log_streams(handle))


def opaque_types(type_: object) -> Iterator[Opaque]:
    """Yield the types within ``type_`` whose values only the user's own serializer can read."""
    if isinstance(type_, Opaque):
        yield type_
    elif isinstance(type_, tuple):
        for item in type_:
            yield from opaque_types(item)
    elif is_dataclass(type_):
        for field in fields(type_):
            yield from opaque_types(getattr(type_, field.name))
