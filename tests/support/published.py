"""Reading published tables as the documents describe it, without the code that writes them."""

import json
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import obstore
import pyarrow as pa
import pyarrow.parquet as pq
from deltalake import DeltaTable
from obstore.store import from_url

if TYPE_CHECKING:
    from pyiceberg.table import Table


def feed_rows(target: Path) -> pa.Table:
    """Return all rows of a feed in Parquet, in the order of its commits."""
    tables = [pq.read_table(path) for path in sorted(target.glob("commit-*/*.parquet"))]
    return pa.concat_tables(tables)


def delta_rows(target: Path | str) -> pa.Table:
    """Return all rows of a table or a feed in Delta. ``target``: a directory, or the URI of an object storage."""
    options = {"allow_http": "true"} if isinstance(target, str) else None
    return DeltaTable(target, storage_options=options).to_pyarrow_table()


def keys_in(target: str) -> list[str]:
    """Return the keys of all objects below a URI, relative to it."""
    store = from_url(target, client_options={"allow_http": True})
    return sorted(item["path"] for page in obstore.list(store) for item in page)


def rows_in_bucket(target: str, commits: slice = slice(None)) -> pa.Table:
    """Return the rows of a table in Parquet in a bucket: of the files that the manifests of the ``commits`` name."""
    store = from_url(target, client_options={"allow_http": True})
    manifests = [key for key in keys_in(target) if key.startswith("commit-")][commits]
    named = [json.loads(bytes(obstore.get(store, key).bytes()))["files"] for key in manifests]
    paths = [file["path"] for files in named for file in files]
    return pa.concat_tables(pq.read_table(pa.BufferReader(bytes(obstore.get(store, path).bytes()))) for path in paths)


def iceberg_environment(root: Path) -> dict[str, str]:
    """Return the environment variables that make ``lake`` an Iceberg catalog in a file of SQLite."""
    settings = {"TYPE": "sql", "URI": f"sqlite:///{root}/lake.db", "WAREHOUSE": f"file://{root}/lake"}
    return {f"PYICEBERG_CATALOG__LAKE__{name}": value for name, value in settings.items()}


@contextmanager
def iceberg_table(name: str) -> Iterator["Table"]:
    """Yield a table of the Iceberg catalog ``lake``."""
    from pyiceberg.catalog import load_catalog
    from pyiceberg.utils.config import Config

    with load_catalog("lake", **Config().get_catalog_config("lake")) as catalog:
        yield catalog.load_table(name)


def iceberg_rows(name: str) -> pa.Table:
    """Return all rows of a table or a feed in Iceberg."""
    with iceberg_table(name) as table:
        return table.scan().to_arrow()


def by_identity(rows: pa.Table, identity: list[str]) -> dict[tuple[Any, ...], dict[str, Any]]:
    """Return the rows of a table by the columns that identify a row."""
    by_key = {tuple(row[name] for name in identity): row for row in rows.to_pylist()}
    assert len(by_key) == len(rows), "a row twice"
    return by_key


def folded(feed: pa.Table, identity: list[str]) -> dict[tuple[Any, ...], dict[str, Any]]:
    """Return the rows that result from a feed, by the columns that identify a row."""
    rows: dict[tuple[Any, ...], dict[str, Any]] = {}
    columns = [name for name in feed.column_names if name not in OF_FEED]
    for row in sorted(feed.to_pylist(), key=lambda row: row["commit"]):
        key = tuple(row[name] for name in identity)
        if row["change"] == "delete":
            del rows[key]
        else:
            assert (row["change"] == "insert") is (key not in rows), f"{row['change']} of {key}"
            rows[key] = {name: row[name] for name in columns}
    return rows


def table_rows(target: Path, identity: list[str]) -> dict[tuple[Any, ...], dict[str, Any]]:
    """Return the rows of a table in Parquet, by the columns that identify a row."""
    manifest = json.loads(max(target.glob("commit-*/_manifest.json")).read_text())
    files = [pq.read_table(target / file["path"]) for file in manifest["files"]]
    return by_identity(pa.concat_tables(files), identity)


def errors_together(count: int, publish: Callable[[], object]) -> list[Exception]:
    """Return the errors of publishers that begin at once, each in a thread of its own."""
    barrier = threading.Barrier(count)
    errors: list[Exception] = []

    def together() -> None:
        barrier.wait()
        try:
            publish()
        except Exception as error:
            errors.append(error)

    threads = [threading.Thread(target=together) for _ in range(count)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return errors


TABLES = [(format_, mode) for format_ in ("parquet", "delta", "iceberg") for mode in ("table", "changes")]
"""The formats of published tables, each with both modes."""
OF_FEED = ("commit", "checkpoint_id", "interval_start", "interval_end", "change")


def published(root: Path, format_: str, mode: str) -> dict[str, dict[str, object]]:
    """Return the rows of the table ``total`` by shop, of a feed the rows that result from it. ``root``: the directory
    that has the table in Parquet or Delta."""
    if format_ == "parquet" and mode == "table":
        rows = table_rows(root / "total", ["shop"])
    else:
        read = {"parquet": feed_rows, "delta": delta_rows}.get(format_)
        all_rows = read(root / "total") if read else iceberg_rows("shop.total")
        rows = folded(all_rows, ["shop"]) if mode == "changes" else by_identity(all_rows, ["shop"])
    return {shop: {name: row[name] for name in sorted(row) if name != "shop"} for (shop,), row in rows.items()}
