"""Side data: bytes that user code keeps from one run to the next besides its states, such as a model or a lookup table.

A subtask's side data is kept for its key groups. It is written only if it has changed; otherwise a checkpoint refers to
the file that an earlier one wrote.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from statelib.errors import InvalidRequestError
from statelib.model.handles import ByteStreamStateHandle, FileStateHandle, RelativeFileStateHandle
from statelib.model.key_groups import KeyGroupRange
from statelib.storage.ports.views import StateReader, WrittenStream


@dataclass(frozen=True)
class StoredSideData:
    """One piece of side data in an earlier snapshot. It can be pickled.

    Attributes:
        name: The name of the side data.
        key_group_range: The key groups of the subtask that restores it for which it was kept.
        handle: The file, or the bytes themselves.
        stream: The same as a stream with its checksums; None for bytes that lie in the snapshot's ``_metadata``.
        uri: The absolute URI of the file; '' without a file.
        reader: The reader of the snapshot.
        can_be_referred_to: Whether later checkpoints may refer to the file, instead of copying it.
    """

    name: str
    key_group_range: KeyGroupRange
    handle: FileStateHandle | RelativeFileStateHandle | ByteStreamStateHandle
    stream: WrittenStream | None
    uri: str
    reader: StateReader
    can_be_referred_to: bool

    def read(self) -> bytes:
        """Return the bytes, verified. Raise what the reader raises."""
        return bytes(self.reader.read(self.handle))


class SideData:
    """The side data of one name in one subtask. User code gets it from ``operator.side_data(name)``.

    After rescaling, a subtask sees what the earlier subtasks kept whose key groups it now has. So it may have several
    pieces, and :meth:`read_all` returns them."""

    def __init__(self, name: str, stored: Sequence[StoredSideData] = ()) -> None:
        self.name = name
        self._stored = tuple(stored)
        self._written: bytes | None = None
        self._pieces: list[bytes] | None = None

    def exists(self) -> bool:
        """Return whether anything is kept under the name. Nothing is read."""
        return self._written is not None or bool(self._stored)

    def read(self) -> bytes | None:
        """Return the bytes that were written last, in this run or in an earlier one; None if there are none.

        Raise InvalidRequestError (``several-side-data``) if earlier subtasks kept different bytes."""
        pieces = self.read_all()
        if len(pieces) > 1:
            raise InvalidRequestError(
                f"side data {self.name!r}: {len(pieces)} earlier subtasks, whose key groups this subtask now has, kept"
                " different bytes: expected one",
                kind="several-side-data",
                hint="read_all() returns all of them: make one of them, and write it",
            )
        return pieces[0] if pieces else None

    def read_all(self) -> list[bytes]:
        """Return the different pieces that are kept under the name, in the order of their key groups.

        There is more than one only after rescaling, until :meth:`write` replaces them."""
        if self._written is not None:
            return [self._written]
        if self._pieces is None:
            self._pieces = list(dict.fromkeys(data for _, data in self.read_parts()))
        return list(self._pieces)

    def read_parts(self) -> list[tuple[KeyGroupRange, bytes]]:
        """Return what earlier runs stored, as (key groups for which it counts, bytes), in the order of the key groups.

        The bytes may hold more than these key groups: after rescaling, each of several subtasks has a part of a piece
        and may have replaced its part."""
        by_handle = {part.handle: part for part in self._stored}
        data = {handle: part.read() for handle, part in by_handle.items()}
        return [(part.key_group_range, data[part.handle]) for part in self._stored]

    def write(self, data: bytes) -> None:
        """Keep ``data`` under the name, in place of all that was kept. It is stored with the snapshot of this run."""
        if not isinstance(data, bytes | bytearray | memoryview):
            raise InvalidRequestError(
                f"side data {self.name!r}: expected bytes, found {type(data).__name__}", kind="bad-side-data"
            )
        self._written, self._pieces, self._stored = bytes(data), None, ()

    def delete(self) -> None:
        """Keep nothing under the name any more."""
        self._written, self._pieces, self._stored = None, None, ()

    def frozen(self) -> "FrozenSideData":
        """Return what is kept at this moment. Later writes do not change it."""
        return FrozenSideData(self.name, self._written, self._stored)


@dataclass(frozen=True)
class FrozenSideData:
    """The side data of one name at one moment: what was written in this run, else what earlier runs stored."""

    name: str
    written: bytes | None
    stored: tuple[StoredSideData, ...]
