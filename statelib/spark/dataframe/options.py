"""The options of the formats of ``spark.read``, and the snapshot that they describe."""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from statelib.errors import InvalidRequestError, StatelibError
from statelib.flows.views.inspection import is_id, resolve
from statelib.flows.wiring import deployment, storage_root
from statelib.savepoints.opened import Checkpoint, open_checkpoint

STATE_OPTIONS = ("path", "state", "operator", "columns", "partitions", "relocate", "scratch")
METADATA_OPTIONS = ("path", "operator", "relocate")


def check_options(options: Mapping[str, str], allowed: tuple[str, ...]) -> None:
    """Raise InvalidRequestError: ``unknown-option`` for an option that is not in ``allowed``, because Spark would
    ignore a misspelt one, and ``no-path`` if there is no option ``path``."""
    unknown = sorted({name.lower() for name in options} - set(allowed))
    if unknown:
        raise InvalidRequestError(
            f"options {', '.join(unknown)}: known are {', '.join(allowed)}", kind="unknown-option", hint="correct it"
        )
    if not options.get("path"):
        raise InvalidRequestError(
            "no snapshot is named", kind="no-path", hint="load(<pipeline>/<id>), or load() the path of its directory"
        )


def snapshot_of(options: Mapping[str, str], variables: Mapping[str, str] | None = None) -> Checkpoint:
    """Return the snapshot at the option ``path``, which is ``<pipeline>/<id>`` or the path of a directory, with the
    operator of the option ``operator`` selected, and its files moved as the option ``relocate`` describes.
    ``variables``: those that describe the deployment; None stands for the environment of this process.

    Raises InvalidRequestError (``bad-relocate``), and the errors of :func:`~statelib.flows.views.inspection.resolve`,
    :func:`open_checkpoint` and :meth:`Checkpoint.select`."""
    text, described = options["path"], {} if variables is None else {"environ": variables}
    relocate = _relocation(options.get("relocate"))
    if is_id(text) and not _has_snapshot(Path(text)):
        if relocate is not None:
            raise InvalidRequestError(
                f"option relocate with {text}, which is no path: the catalog records where its files are",
                kind="bad-relocate",
            )
        opened = resolve(deployment(**described), text)
    else:
        path = text if ":" in text else str(Path(text).absolute())
        opened = open_checkpoint(path, storage_root=storage_root(**described), relocate=relocate)
    return opened.select(options["operator"]) if "operator" in options else opened


def _has_snapshot(path: Path) -> bool:
    """Return whether a path is one of a snapshot. A directory may have the name of a pipeline by chance."""
    return path.is_file() or (path / "_metadata").exists()


def names_of(text: str) -> tuple[str, ...]:
    """Return the names in a text in which commas separate them."""
    return tuple(name.strip() for name in text.split(",") if name.strip())


def positive(options: Mapping[str, str], name: str) -> int | None:
    """Return the value of an option as a number of at least 1; None if the option is not set. Raises
    InvalidRequestError (``bad-option``)."""
    text = options.get(name)
    if text is None:
        return None
    if not text.isdecimal() or int(text) < 1:
        raise InvalidRequestError(f"option {name} {text!r}: expected a number from 1 on", kind="bad-option")
    return int(text)


@contextmanager
def noting_kinds() -> Iterator[None]:
    """Add the ``kind`` of a StatelibError to its notes, because Spark only forwards the text of an error."""
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
