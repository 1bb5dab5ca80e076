"""Faster import of a library: modules that it imports but rarely uses are loaded at first use, or not at all."""

import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from importlib.machinery import ModuleSpec, PathFinder
from importlib.util import LazyLoader
from types import ModuleType


class _Deferring:
    """A finder of modules that delays the loading of the modules ``names``. It must come before all other finders."""

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
    """Delay the loading of the modules ``names``: a module that is first imported inside this block is loaded when one
    of its attributes is used."""
    finder = _Deferring(names)
    sys.meta_path.insert(0, finder)
    try:
        yield
    finally:
        sys.meta_path.remove(finder)


@contextmanager
def without(*names: str) -> Iterator[None]:
    """Hide the modules ``names``: importing one inside this block raises ImportError, as if it were not installed,
    unless it is already loaded. The importing library must be able to work without them."""
    absent = [name for name in names if name not in sys.modules]
    sys.modules.update(dict.fromkeys(absent))  # type: ignore[arg-type]
    try:
        yield
    finally:
        for name in absent:
            del sys.modules[name]
