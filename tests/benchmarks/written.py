"""The bytes that a turn leaves in a directory, measured by the files that are new or have grown since."""

from collections.abc import Iterable
from pathlib import Path


class Written:
    """A counter of written bytes. ``taken()``: the bytes since the last call, or since its creation. Files that were
    created and removed between two calls are not counted."""

    def __init__(self, roots: Iterable[Path]) -> None:
        self._roots = tuple(roots)
        self._known: dict[tuple[Path, int], int] = {}
        self.taken()

    def taken(self) -> int:
        files = (file for root in self._roots for file in root.rglob("*") if file.is_file())
        stats = [(file, file.stat()) for file in files]
        # Another file of the same name counts as new.
        sizes = {(file, stat.st_ino): stat.st_size for file, stat in stats}
        new = sum(max(size - self._known.get(file, 0), 0) for file, size in sizes.items())
        self._known = sizes
        return new
