"""The kinds of storage, each by its URL scheme, and how long each is asked again: the one place that names them all."""

import time
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import replace

from statelib.model.ids import AttemptId
from statelib.storage.objects.uris import SCHEMES
from statelib.storage.places import FileSystemKind, ObjectKind, Places
from statelib.storage.retries import Retries

RETRIES = Retries((0.1, 0.3, 1.0, 3.0, 9.0), time.sleep)
"""How long a storage that is in trouble is asked again."""
_HURRIED = replace(RETRIES, delays_s=(), request_timeout_s=3.0)
_PATIENCE: ContextVar[Retries | None] = ContextVar("patience", default=None)


@contextmanager
def hurried() -> Iterator[None]:
    """What is opened within asks an object storage once, and for three seconds: somebody waits for the answer."""
    token = _PATIENCE.set(_HURRIED)
    try:
        yield
    finally:
        _PATIENCE.reset(token)


def patience() -> Retries:
    return _PATIENCE.get() or RETRIES


_FILES = FileSystemKind()
PLACES = Places({"": _FILES, "file": _FILES} | dict.fromkeys(SCHEMES, ObjectKind(patience)))


def new_attempt() -> AttemptId:
    return AttemptId(uuid.uuid4().hex)
