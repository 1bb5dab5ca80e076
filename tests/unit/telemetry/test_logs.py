"""Log lines carry their checkpoint, on other threads too, and never a secret."""

import io
import json
import logging
import threading
from collections.abc import Iterator
from contextvars import copy_context

import pytest

from statelib.errors import InvalidRequestError
from statelib.flows.wiring import log_settings
from statelib.telemetry.logs import FORMATS, LogSettings, bound, configure, configured, current, hidden
from statelib.telemetry.secrets import secrets

CANARY = "hunter2-c%40nary"
MEANT = "hunter2-c@nary"
CATALOG = f"postgresql+psycopg://me:{CANARY}@db.example:5432/statelib"
log = logging.getLogger("statelib.flows.test")


@pytest.fixture(autouse=True)
def restored() -> Iterator[None]:
    """Restore the logging of the process after the test."""
    root, own = logging.getLogger(), logging.getLogger("statelib")
    before = list(root.handlers), own.level
    yield
    root.handlers[:], own.level = before[0], before[1]
    own.setLevel(before[1])


def lines(settings: LogSettings) -> io.StringIO:
    out = io.StringIO()
    configure(settings, out)
    return out


def test_json_lines_have_airflows_names_and_the_bound_fields() -> None:
    out = lines(LogSettings("json", "INFO"))
    with bound(pipeline="sales", checkpoint_id=7), bound(attempt="a1", subtask=0):
        log.info("took %d ms", 5)
    log.info("outside")
    first, second = map(json.loads, out.getvalue().splitlines())
    assert first.pop("timestamp").endswith("Z")
    assert first == {
        "level": "info", "logger": "statelib.flows.test", "event": "took 5 ms",
        "pipeline": "sales", "checkpoint_id": 7, "attempt": "a1", "subtask": 0,
    }  # fmt: skip
    assert "pipeline" not in second


def test_text_lines_end_with_the_bound_fields() -> None:
    out = lines(LogSettings("text", "INFO"))
    with bound(pipeline="sales", checkpoint_id=7, attempt=None):
        log.warning("slow")
    assert out.getvalue().endswith("WARNING statelib.flows.test: slow [pipeline=sales checkpoint_id=7]\n")


def test_bound_fields_end_with_their_block_even_after_an_error() -> None:
    with pytest.raises(RuntimeError), bound(pipeline="sales"):
        raise RuntimeError
    assert current() == {}


def test_a_thread_with_a_copy_of_the_context_has_the_bound_fields() -> None:
    out = lines(LogSettings("json", "INFO"))
    with bound(pipeline="sales", checkpoint_id=7):
        thread = threading.Thread(target=copy_context().run, args=(log.info, "from a thread"))
        thread.start()
        thread.join()
    assert json.loads(out.getvalue())["checkpoint_id"] == 7


@pytest.mark.parametrize("form", FORMATS)
def test_no_line_shows_a_password(form: str) -> None:
    out = lines(
        LogSettings(form, "INFO", secrets({"STATELIB_CATALOG": CATALOG, "AWS_SECRET_ACCESS_KEY": "abc/def+ghi"}))
    )
    log.warning("cannot reach %s", CATALOG)
    log.warning("key abc/def+ghi, password %s, s3://bucket/x?X-Amz-Signature=0123456789&a=1", MEANT)
    try:
        raise ValueError(f"bad URL {CATALOG}")
    except ValueError:
        log.exception("it broke")
    logged = out.getvalue()
    assert CANARY not in logged
    assert MEANT not in logged
    assert "abc/def" not in logged
    assert "0123456789" not in logged
    assert logged.count("db.example:5432/statelib") == 2
    assert "ValueError" in logged
    assert "a=1" in logged


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("postgresql://u:p@ss@host/db", "postgresql://u:***@host/db"),
        ("amqp://:secret@h/ and http://x:y@z", "amqp://:***@h/ and http://x:***@z"),
        ("file:///a:b/c@d", "file:///a:b/c@d"),
        ("http://host:8080/path", "http://host:8080/path"),
        ("https://h/p?sig=abc%3D&se=1", "https://h/p?sig=***&se=1"),
        ("password=abc token: x", "password=*** token: x"),
        ("postgresql://u@h/db?sslpassword=abc&a=1", "postgresql://u@h/db?sslpassword=***&a=1"),
    ],
)
def test_secrets_in_text_are_hidden(text: str, expected: str) -> None:
    assert hidden(text) == expected


def test_configuring_again_replaces_the_handler() -> None:
    first = lines(LogSettings("json", "INFO", ("s3cr3t-thing",)))
    second = lines(LogSettings("text", "WARNING", ("s3cr3t-thing",)))
    log.info("not shown")
    log.warning("shown")
    assert (first.getvalue(), second.getvalue().count("\n")) == ("", 1)
    assert configured() == LogSettings("text", "WARNING"), "secrets stay where they are"


def test_the_environment_sets_format_and_level() -> None:
    assert log_settings("INFO", {}) == LogSettings("text", "INFO")
    environ = {"STATELIB_LOG_FORMAT": "json", "STATELIB_LOG_LEVEL": "debug", "MY_TOKEN": "0123456", "TOKEN": "false"}
    assert log_settings("INFO", environ) == LogSettings("json", "DEBUG", ("0123456",))
    assert "0123456" not in repr(log_settings("INFO", environ))


@pytest.mark.parametrize("environ", [{"STATELIB_LOG_FORMAT": "xml"}, {"STATELIB_LOG_LEVEL": "LOUD"}])
def test_other_settings_are_refused(environ: dict[str, str]) -> None:
    with pytest.raises(InvalidRequestError, match="expected") as refusal:
        log_settings("INFO", environ)
    assert refusal.value.kind == "bad-log-setting"


def test_other_libraries_log_only_warnings_and_errors_whatever_the_root_level() -> None:
    out = lines(LogSettings("text", "INFO"))
    root, level = logging.getLogger(), logging.getLogger().level
    root.setLevel(logging.INFO)
    try:
        logging.getLogger("other").info("chatter")
        logging.getLogger("other").warning("trouble")
        log.info("ours")
    finally:
        root.setLevel(level)
    assert "chatter" not in out.getvalue()
    assert "trouble" in out.getvalue()
    assert "ours" in out.getvalue()
