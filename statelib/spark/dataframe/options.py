"""The options of ``spark.read.format("statelib")``, and the snapshot that they name."""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from statelib.errors import InvalidRequestError, StatelibError
from statelib.flows.views.inspection import is_id, resolve
from statelib.flows.wiring import deployment, storage_root
from statelib.savepoints.opened import Checkpoint, open_checkpoint

STATE_OPTIONS = ("path", "state", "operator", "columns", "partitions", "relocate", "scratch")
METADATA_OPTIONS = ("path", "operator", "relocate")


def check_options(options: Mapping[str, str], known: tuple[str, ...]) -> None:
    """Raise InvalidRequestError (``unknown-option``, ``no-path``): a misspelt option must not be read over."""
    unknown = sorted({name.lower() for name in options} - set(known))
    if unknown:
        raise InvalidRequestError(
            f"options {', '.join(unknown)}: known are {', '.join(known)}", kind="unknown-option", hint="correct it"
        )
    if not options.get("path"):
        raise InvalidRequestError(
            "no snapshot is named", kind="no-path", hint="load(<pipeline>/<id>), or load() the path of its directory"
        )


def snapshot_of(options: Mapping[str, str]) -> Checkpoint:
    """The snapshot of ``path``, at the operator and with the files where the options say.

    Raises as :func:`~statelib.flows.views.inspection.resolve`, :meth:`Checkpoint.select`; InvalidRequestError
    (``bad-relocate``)."""
    text = options["path"]
    if is_id(text) and not Path(text).exists():
        opened = resolve(deployment(), text)
    else:
        path = text if ":" in text else str(Path(text).absolute())
        opened = open_checkpoint(path, storage_root=storage_root(), relocate=_relocation(options.get("relocate")))
    return opened.select(options["operator"]) if "operator" in options else opened


def names_of(text: str) -> tuple[str, ...]:
    """Names between commas."""
    return tuple(name.strip() for name in text.split(",") if name.strip())


def positive(options: Mapping[str, str], name: str) -> int | None:
    """The number of that option, None if it is not given; InvalidRequestError (``bad-option``)."""
    text = options.get(name)
    if text is None:
        return None
    if not text.isdecimal() or int(text) < 1:
        raise InvalidRequestError(f"option {name} {text!r}: expected a number from 1 on", kind="bad-option")
    return int(text)


@contextmanager
def kinds_told() -> Iterator[None]:
    """Spark hands on the text of an error only: it shall name the kind too."""
    try:
        yield
    except StatelibError as error:
        error.add_note(f"kind: {error.kind}")
        raise


def _relocation(text: str | None) -> dict[str, str] | None:
    if text is None:
        return None
    old, _, new = text.partition("=")
    if not old or not new:
        raise InvalidRequestError(
            f"option relocate {text!r}: expected OLD=NEW, two absolute directories", kind="bad-relocate"
        )
    return {old: new}
