"""Log lines as text or JSON that name the checkpoint they belong to and hide secrets.

:func:`bound` stores fields such as the checkpoint id in a context variable. The handler that :func:`configure` adds
writes them into every line of every logger. In Airflow's tasks, Airflow writes the lines and adds its own fields.
"""

import json
import logging
import re
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from typing import TextIO

from statelib.errors import InvalidRequestError
from statelib.visible import visible, visible_json

FIELDS = ("pipeline", "checkpoint_id", "attempt", "subtask")
"""The names of the fields that can be bound, in the order in which they are shown."""
FORMATS = ("text", "json")
LEVELS = ("DEBUG", "INFO", "WARNING", "ERROR")
HIDDEN = "***"
SHORTEST_SECRET = 6
"""The least number of characters of a secret that is hidden. A shorter one may be part of ordinary words, and it can be
guessed anyway."""

# The password in user:password@ of any URL, up to the last @ before a slash or a space, because it may contain an @.
_IN_URL = re.compile(r"(://[^/\s:@]*:)[^/\s]+(?=@)")
_IN_QUERY = re.compile(
    r"(?i)\b(\w*(?:password|passwd|secret|token|sig|signature|x-amz-signature|x-amz-credential|x-amz-security-token)=)[^&\s'\"]+"
)

Fields = Mapping[str, str | int]
_bound: ContextVar[Fields] = ContextVar("statelib_log_fields")


@dataclass(frozen=True)
class LogSettings:
    """The settings of the log. ``secrets``: texts that no line may show. They are not sent to other hosts, which have
    their own."""

    format: str = "text"
    level: str = "WARNING"
    secrets: tuple[str, ...] = field(default=(), repr=False)

    def __post_init__(self) -> None:
        """Raise InvalidRequestError (``bad-log-setting``) for an unknown format or level."""
        for name, value, allowed in (("FORMAT", self.format, FORMATS), ("LEVEL", self.level, LEVELS)):
            if value not in allowed:
                raise InvalidRequestError(
                    f"STATELIB_LOG_{name}={value}: expected {', '.join(allowed)}", kind="bad-log-setting"
                )


@contextmanager
def bound(**fields: str | int | None) -> Iterator[None]:
    """Add fields to every line that is logged inside the block, besides the fields that are bound already. The names
    are those of :data:`FIELDS`; a value None leaves the field unchanged. A thread has the fields if it runs in a copy
    of the context."""
    new_fields = {name: value for name, value in fields.items() if value is not None}
    token = _bound.set({**current(), **new_fields})
    try:
        yield
    finally:
        _bound.reset(token)


def current() -> Fields:
    """Return the fields that are bound in the current context."""
    return _bound.get({})


def configure(settings: LogSettings, stream: TextIO | None = None) -> None:
    """Write log lines to ``stream`` (None: stderr): those of statelib from ``settings.level`` on, those of other
    libraries from WARNING on. A second call replaces the handler of the first. Other handlers stay."""
    root = logging.getLogger()
    for handler in [h for h in root.handlers if isinstance(h, _Handler)]:
        root.removeHandler(handler)
    root.addHandler(_Handler(settings, stream))
    logging.getLogger("statelib").setLevel(settings.level)


def configured() -> LogSettings | None:
    """Return the settings of the last call of :func:`configure` without the secrets, so that they can be sent to other
    hosts; None if it was not called."""
    handlers = [h for h in logging.getLogger().handlers if isinstance(h, _Handler)]
    return replace(handlers[0].settings, secrets=()) if handlers else None


def hidden(text: str, secrets: Sequence[str] = ()) -> str:
    """Return the text with :data:`HIDDEN` in place of passwords in URLs, signatures and tokens in queries, and
    ``secrets``."""
    for secret in secrets:
        text = text.replace(secret, HIDDEN)
    return _IN_QUERY.sub(rf"\g<1>{HIDDEN}", _IN_URL.sub(rf"\g<1>{HIDDEN}", text))


def _is_written(record: logging.LogRecord) -> bool:
    """Return whether a record is written: any record from WARNING on, and all records of statelib. The level of the
    root logger, which other libraries may change, does not matter."""
    return record.levelno >= logging.WARNING or record.name.partition(".")[0] == "statelib"


class _Handler(logging.Handler):
    """The handler that :func:`configure` adds. It runs in the thread that logs and so reads the fields bound there."""

    def __init__(self, settings: LogSettings, stream: TextIO | None) -> None:
        super().__init__()
        self._stream = stream
        self.settings = settings
        self.addFilter(_is_written)
        self.setFormatter(JsonLines(settings.secrets) if settings.format == "json" else TextLines(settings.secrets))

    def emit(self, record: logging.LogRecord) -> None:
        try:
            stream = sys.stderr if self._stream is None else self._stream  # sys.stderr may have been replaced
            stream.write(self.format(record) + "\n")
            stream.flush()
        except Exception:  # noqa: BLE001 - a line that cannot be written must not end the program
            self.handleError(record)


class TextLines(logging.Formatter):
    """The formatter of text lines: ``<UTC> <level> <logger>: <message> [pipeline=... checkpoint_id=...]``, followed by
    the traceback if there is one. All lines of a record after its first are indented, so that data in a message cannot
    look like another record."""

    def __init__(self, secrets: Sequence[str] = ()) -> None:
        super().__init__()
        self._secrets = secrets

    def format(self, record: logging.LogRecord) -> str:
        """Return the record as text, with secrets hidden."""
        fields = " ".join(f"{name}={value}" for name, value in current().items())
        line = f"{_timestamp(record)} {record.levelname} {record.name}: {record.getMessage()}"
        parts = [f"{line} [{fields}]" if fields else line, _traceback(self, record)]
        text = hidden("\n".join(part for part in parts if part), self._secrets)
        return visible(text, lines=True).replace("\n", "\n  ")


class JsonLines(logging.Formatter):
    """The formatter of JSON lines, one object per record. Its names are those of Airflow: ``timestamp``, ``level``,
    ``logger``, ``event`` (the message), the bound fields, and ``error_detail`` with the traceback if there is one."""

    def __init__(self, secrets: Sequence[str] = ()) -> None:
        super().__init__()
        self._secrets = secrets

    def format(self, record: logging.LogRecord) -> str:
        """Return the record as JSON on one line, with secrets hidden."""
        content: dict[str, str | int] = {
            "timestamp": _timestamp(record),
            "level": record.levelname.lower(),
            "logger": record.name,
            "event": hidden(record.getMessage(), self._secrets),
            **current(),
        }
        if traceback := _traceback(self, record):
            content["error_detail"] = hidden(traceback, self._secrets)
        return visible_json(json.dumps(content, ensure_ascii=False))


def _timestamp(record: logging.LogRecord) -> str:
    moment = datetime.fromtimestamp(record.created, UTC)
    return f"{moment:%Y-%m-%dT%H:%M:%S}.{int(record.msecs):03d}Z"


def _traceback(formatter: logging.Formatter, record: logging.LogRecord) -> str:
    return formatter.formatException(record.exc_info) if record.exc_info and record.exc_info[0] else ""
