"""Modules that a library imports and hardly ever needs: loaded when it does, or not at all."""

import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from importlib.machinery import ModuleSpec, PathFinder
from importlib.util import LazyLoader
from types import ModuleType


class _Deferring:
    """A finder that comes before all others, for a few names."""

    def __init__(self, names: Sequence[str]) -> None:
        self._names = frozenset(names)

    def find_spec(
        self, name: str, path: Sequence[str] | None = None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        spec = PathFinder.find_spec(name, path, target) if name in self._names else None
        if spec is not None and spec.loader is not None:
            spec.loader = LazyLoader(spec.loader)
        return spec


@contextmanager
def deferred(*names: str) -> Iterator[None]:
    """Modules ``names`` that are imported first inside this block are loaded when something of them is used."""
    finder = _Deferring(names)
    sys.meta_path.insert(0, finder)
    try:
        yield
    finally:
        sys.meta_path.remove(finder)


@contextmanager
def without(*names: str) -> Iterator[None]:
    """Modules ``names``, unless they are loaded, cannot be imported inside this block: ImportError, as if they were not
    installed. For what a library can do without."""
    absent = [name for name in names if name not in sys.modules]
    sys.modules.update(dict.fromkeys(absent))  # type: ignore[arg-type]
    try:
        yield
    finally:
        for name in absent:
            del sys.modules[name]
