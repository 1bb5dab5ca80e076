"""Export the state of a snapshot as Parquet files."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pyarrow.parquet as pq

from statelib.errors import InvalidRequestError
from statelib.savepoints.opened import Checkpoint
from statelib.savepoints.tables.parquet_tables import storable


def export_parquet(opened: Checkpoint, state: str | None, target: Path, scratch: str | None = None) -> list[Path]:
    """One Parquet file a state, ``<target>/<state>.parquet``, of the operator with keyed state.

    Raises InvalidRequestError (``target-exists``, ``bad-target``, ``unknown-state``): refuses to overwrite a file.
    """
    schema = opened.schema()
    wanted = schema.states if state is None else (schema.state(state),)
    paths = {descriptor.name: target / file_name(descriptor.name) for descriptor in wanted}
    for path in paths.values():
        if path.exists():
            raise InvalidRequestError(f"{path} exists already", kind="target-exists", hint="choose an empty directory")
    with writing(target):
        target.mkdir(parents=True, exist_ok=True)
    for name, path in paths.items():
        table = storable(opened.to_arrow(name, scratch))
        with writing(path), path.open("xb") as file:
            pq.write_table(table, file, compression="zstd")
    return list(paths.values())


def file_name(state: str) -> str:
    """Flink allows any text as a name of a state; a file gets one that stays in its directory."""
    return state.replace("%", "%25").replace("/", "%2F").replace("\0", "%00") + ".parquet"


@contextmanager
def writing(path: Path) -> Iterator[None]:
    """Turns what the operating system says of a user's output into InvalidRequestError (``bad-target``,
    ``target-exists``)."""
    try:
        yield
    except FileExistsError as error:
        raise InvalidRequestError(f"{path} exists already", kind="target-exists", hint="choose another") from error
    except OSError as error:
        raise InvalidRequestError(f"writing {path}: {error.strerror or error}", kind="bad-target") from error
