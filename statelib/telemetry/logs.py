"""Log lines that say which checkpoint they are of, as text or as JSON, without secrets.

What is bound travels in a context variable; the one handler that :func:`configure` makes adds it to every line of
every logger. In Airflow's tasks the lines are Airflow's, and so is what is bound to them.
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
"""What may be bound, in the order in which it is shown."""
FORMATS = ("text", "json")
LEVELS = ("DEBUG", "INFO", "WARNING", "ERROR")
HIDDEN = "***"
SHORTEST_SECRET = 6
"""Characters. Hiding shorter ones would tear words apart, and hide nothing that could not be guessed."""

# user:password@ of any URL, up to the last @ before a slash or a space: passwords with @ happen.
_IN_URL = re.compile(r"(://[^/\s:@]*:)[^/\s]+(?=@)")
_IN_QUERY = re.compile(
    r"(?i)\b(\w*(?:password|passwd|secret|token|sig|signature|x-amz-signature|x-amz-credential|x-amz-security-token)=)[^&\s'\"]+"
)

Fields = Mapping[str, str | int]
_bound: ContextVar[Fields] = ContextVar("statelib_log_fields")


@dataclass(frozen=True)
class LogSettings:
    """``secrets``: texts that no line may show. Not to be shipped: each host has its own."""

    format: str = "text"
    level: str = "WARNING"
    secrets: tuple[str, ...] = field(default=(), repr=False)

    def __post_init__(self) -> None:
        """Raises InvalidRequestError (``bad-log-setting``)."""
        for name, value, known in (("FORMAT", self.format, FORMATS), ("LEVEL", self.level, LEVELS)):
            if value not in known:
                raise InvalidRequestError(
                    f"STATELIB_LOG_{name}={value}: expected {', '.join(known)}", kind="bad-log-setting"
                )


@contextmanager
def bound(**fields: str | int | None) -> Iterator[None]:
    """Every line that is logged in the block has these fields (of :data:`FIELDS`; None: as it was) besides those
    bound around it. Threads that are started with a copy of the context have them too."""
    given = {name: value for name, value in fields.items() if value is not None}
    token = _bound.set({**current(), **given})
    try:
        yield
    finally:
        _bound.reset(token)


def current() -> Fields:
    """What is bound here."""
    return _bound.get({})


def configure(settings: LogSettings, stream: TextIO | None = None) -> None:
    """Send what is logged to ``stream`` (None: stderr), from ``settings.level`` on; other libraries' lines from
    WARNING on. A second call replaces the first; handlers of others stay."""
    root = logging.getLogger()
    for handler in [h for h in root.handlers if isinstance(h, _Handler)]:
        root.removeHandler(handler)
    root.addHandler(_Handler(settings, stream))
    logging.getLogger("statelib").setLevel(settings.level)


def configured() -> LogSettings | None:
    """What :func:`configure` was told last, without the secrets, as it may be shipped to other hosts."""
    handlers = [h for h in logging.getLogger().handlers if isinstance(h, _Handler)]
    return replace(handlers[0].settings, secrets=()) if handlers else None


def hidden(text: str, secrets: Sequence[str] = ()) -> str:
    """The text without passwords in URLs, without signatures in queries, and without ``secrets``."""
    for secret in secrets:
        text = text.replace(secret, HIDDEN)
    return _IN_QUERY.sub(rf"\g<1>{HIDDEN}", _IN_URL.sub(rf"\g<1>{HIDDEN}", text))


def _worth_telling(record: logging.LogRecord) -> bool:
    """Whatever level some library gave the root logger."""
    return record.levelno >= logging.WARNING or record.name.partition(".")[0] == "statelib"


class _Handler(logging.Handler):
    """The one that :func:`configure` made. It looks up what is bound on the thread that logs."""

    def __init__(self, settings: LogSettings, stream: TextIO | None) -> None:
        super().__init__()
        self._stream = stream
        self.settings = settings
        self.addFilter(_worth_telling)
        self.setFormatter(JsonLines(settings.secrets) if settings.format == "json" else TextLines(settings.secrets))

    def emit(self, record: logging.LogRecord) -> None:
        try:
            stream = sys.stderr if self._stream is None else self._stream  # whichever it is now
            stream.write(self.format(record) + "\n")
            stream.flush()
        except Exception:  # noqa: BLE001 - as every handler: a line that cannot be written ends nothing
            self.handleError(record)


class TextLines(logging.Formatter):
    """``<UTC> <level> <logger>: <message> [pipeline=... checkpoint_id=...]``, then a traceback if there is one. Further
    lines of either are indented, so that no data can pass for a line of the log."""

    def __init__(self, secrets: Sequence[str] = ()) -> None:
        super().__init__()
        self._secrets = secrets

    def format(self, record: logging.LogRecord) -> str:
        named = " ".join(f"{name}={value}" for name, value in current().items())
        line = f"{_moment(record)} {record.levelname} {record.name}: {record.getMessage()}"
        parts = [f"{line} [{named}]" if named else line, _traceback(self, record)]
        text = hidden("\n".join(part for part in parts if part), self._secrets)
        return visible(text, lines=True).replace("\n", "\n  ")


class JsonLines(logging.Formatter):
    """An object a line, named as Airflow names its own: ``timestamp``, ``level``, ``logger``, ``event``, what is bound,
    ``error_detail`` with a traceback."""

    def __init__(self, secrets: Sequence[str] = ()) -> None:
        super().__init__()
        self._secrets = secrets

    def format(self, record: logging.LogRecord) -> str:
        content: dict[str, str | int] = {
            "timestamp": _moment(record),
            "level": record.levelname.lower(),
            "logger": record.name,
            "event": hidden(record.getMessage(), self._secrets),
            **current(),
        }
        if traceback := _traceback(self, record):
            content["error_detail"] = hidden(traceback, self._secrets)
        return visible_json(json.dumps(content, ensure_ascii=False))


def _moment(record: logging.LogRecord) -> str:
    moment = datetime.fromtimestamp(record.created, UTC)
    return f"{moment:%Y-%m-%dT%H:%M:%S}.{int(record.msecs):03d}Z"


def _traceback(formatter: logging.Formatter, record: logging.LogRecord) -> str:
    return formatter.formatException(record.exc_info) if record.exc_info and record.exc_info[0] else ""
