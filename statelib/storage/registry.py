"""The registry of all kinds of storage by URL scheme, and the retries of their requests."""

import time
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import replace

from statelib.model.ids import AttemptId
from statelib.storage.filesystem.kind import FileSystemKind
from statelib.storage.objects.kind import ObjectKind
from statelib.storage.objects.uris import SCHEMES
from statelib.storage.places import Places
from statelib.storage.retries import Retries

RETRIES = Retries((0.1, 0.3, 1.0, 3.0, 9.0), time.sleep)
"""The retries of a request that a storage in trouble did not answer."""
_HURRIED = replace(RETRIES, delays_s=(), request_timeout_s=3.0)
_PATIENCE: ContextVar[Retries | None] = ContextVar("patience", default=None)


@contextmanager
def hurried() -> Iterator[None]:
    """Let storages that the body opens make one attempt of three seconds per request. It is for calls whose result a
    user waits for."""
    token = _PATIENCE.set(_HURRIED)
    try:
        yield
    finally:
        _PATIENCE.reset(token)


def patience() -> Retries:
    """Return the retries of object storages that are opened now: :data:`RETRIES`, or fewer within :func:`hurried`."""
    return _PATIENCE.get() or RETRIES


_FILES = FileSystemKind()
PLACES = Places({"": _FILES, "file": _FILES} | dict.fromkeys(SCHEMES, ObjectKind(patience)))


def new_attempt() -> AttemptId:
    """Return a new, random attempt id: 32 hexadecimal digits."""
    return AttemptId(uuid.uuid4().hex)
