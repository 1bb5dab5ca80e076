"""The export of a snapshot's state as Parquet files."""

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from statelib.errors import InvalidRequestError, UnsupportedError
from statelib.savepoints.opened import Checkpoint
from statelib.savepoints.tables.parquet_tables import storable


def export_parquet(opened: Checkpoint, state: str | None, target: Path, scratch: str | None = None) -> list[Path]:
    """Write one Parquet file per state of the selected operator, ``<target>/<state>.parquet``, and return the paths.

    ``state``: the name of the only state to export; None exports all. ``scratch``: the directory for temporary copies.

    Raises InvalidRequestError (``target-exists``, ``bad-target``, ``unknown-state``); no existing file is overwritten.
    After an error, the files that were written are removed."""
    schema = opened.schema()
    wanted = schema.states if state is None else (schema.state(state),)
    paths = {descriptor.name: target / file_name(descriptor.name) for descriptor in wanted}
    for path in paths.values():
        if path.exists():
            raise InvalidRequestError(f"{path} exists already", kind="target-exists", hint="choose an empty directory")
    with writing(target):
        target.mkdir(parents=True, exist_ok=True)
    with ExitStack() as after_an_error:
        for name, path in paths.items():
            table = storable(opened.to_arrow(name, scratch))
            with writing(path), path.open("xb") as file:
                after_an_error.callback(path.unlink)
                pq.write_table(table, file, compression="zstd")
        after_an_error.pop_all()
    return list(paths.values())


def file_name(state: str) -> str:
    """Return the name of the Parquet file of a state. Characters that would lead out of the directory are escaped,
    because Flink allows any text as the name of a state."""
    return state.replace("%", "%25").replace("/", "%2F").replace("\0", "%00") + ".parquet"


@contextmanager
def writing(path: Path) -> Iterator[None]:
    """Raise InvalidRequestError (``bad-target``, ``target-exists``) in place of an OSError while the user's output
    ``path`` is written, and UnsupportedError (``no-columns``) if Parquet cannot hold its columns."""
    try:
        yield
    except FileExistsError as error:
        raise InvalidRequestError(f"{path} exists already", kind="target-exists", hint="choose another") from error
    except OSError as error:
        raise InvalidRequestError(f"writing {path}: {error.strerror or error}", kind="bad-target") from error
    except pa.ArrowNotImplementedError as error:  # a struct without fields within another type
        raise UnsupportedError(
            f"writing {path}: {error}",
            kind="no-columns",
            hint="statelib export --format typed-jsonl shows every value",
        ) from error
