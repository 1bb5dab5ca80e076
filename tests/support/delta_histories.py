"""Tables in the format Delta whose commits have chosen times."""

import json
from collections import Counter
from pathlib import Path
from typing import Any

import pyarrow as pa
from deltalake import DeltaTable, write_deltalake

FEED = {"delta.enableChangeDataFeed": "true"}


def append(path: Path, rows: dict[str, list[Any]], at_ms: int, *, feed: bool = False, partition: str = "") -> int:
    """Append rows in one commit, and make the table if there is none. Return the version."""
    more: dict[str, Any] = {"mode": "append"}
    if not (path / "_delta_log").exists():
        more = {"configuration": FEED if feed else None, "partition_by": [partition] if partition else None}
    write_deltalake(str(path), pa.table(rows), **more)
    return commit_at(path, at_ms)


def commit_at(path: Path, at_ms: int) -> int:
    """Give the newest commit a time, in epoch milliseconds. Return its version."""
    newest = max((path / "_delta_log").glob("*.json"))
    lines = [json.loads(line) for line in newest.read_text().splitlines()]
    for line in lines:
        if "commitInfo" in line:
            line["commitInfo"]["timestamp"] = at_ms
    newest.write_text("\n".join(json.dumps(line) for line in lines))
    return int(newest.stem)


def content(path: Path, version: int | None = None) -> Counter[tuple[Any, ...]]:
    """Return the rows of a version of the table, and how often each is there."""
    table = DeltaTable(str(path), version=version).to_pyarrow_table()
    return Counter(zip(*(table[name].to_pylist() for name in sorted(table.column_names)), strict=True))
