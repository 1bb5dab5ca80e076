"""Files as Debezium's connector for PostgreSQL writes them, and the rows of the table that they describe."""

import json
import random
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import polars as pl

Row = dict[str, Any]
_FIELDS = [
    {"type": "int64", "optional": False, "field": "id"}, {"type": "string", "optional": True, "field": "customer"},
    {"type": "int64", "optional": True, "field": "amount"},
]  # fmt: skip
_SCHEMA = {
    "type": "struct", "optional": False, "name": "shop.public.orders.Envelope",
    "fields": [
        {"type": "struct", "fields": _FIELDS, "optional": True, "name": "shop.public.orders.Value", "field": name}
        for name in ("before", "after")
    ],
}  # fmt: skip


class ChangedTable:
    """A table of orders that is changed day by day. ``rows``: its rows by id, after the changes so far."""

    def __init__(self, seed: int = 1) -> None:
        self.rows: dict[int, Row] = {}
        self._choose = random.Random(seed)
        self._position = 24_000_000
        self._id = 100

    def day(self, number: int, changes: int) -> list[dict[str, Any]]:
        """Change the table and return the payload of each change, in the order of the log. The first day begins with a
        snapshot of three rows."""
        start_ms = int(datetime(2026, 1, number, tzinfo=UTC).timestamp() * 1000)
        return [
            self._change("r" if number == 1 and n < 3 else self._operation(), start_ms + n // 3) for n in range(changes)
        ]

    def _operation(self) -> str:
        return self._choose.choice("cuud" if self.rows else "c")

    def _change(self, operation: str, at_ms: int) -> dict[str, Any]:
        self._position += self._choose.randint(1, 900)
        before = after = None
        if operation in "cr":
            reused = self._id > 100 and self._choose.random() < 0.3 and operation == "c"
            gone = [number for number in range(100, self._id) if number not in self.rows]
            number = self._choose.choice(gone) if reused and gone else self._id
            self._id += number == self._id
        else:
            number = self._choose.choice(sorted(self.rows))
            before = self.rows.pop(number)
        if operation != "d":
            after = {"id": number, "customer": f"c{self._choose.randint(0, 4)}", "amount": self._choose.randint(1, 99)}
            self.rows[number] = after
        source = {
            "version": "3.0.0.Final", "connector": "postgresql", "name": "shop", "ts_ms": at_ms,
            "snapshot": str(operation == "r").lower(), "db": "shop", "schema": "public", "table": "orders",
            "txId": self._position // 1000, "lsn": self._position,
        }  # fmt: skip
        return {"before": before, "after": after, "source": source, "op": operation, "ts_ms": at_ms + 250}


def write_json(directory: Path, payloads: list[dict[str, Any]]) -> None:
    """Write envelopes with their schema as two files of JSON lines in another order, with a tombstone per delete."""
    directory.mkdir(parents=True)
    lines = [json.dumps({"schema": _SCHEMA, "payload": payload}) for payload in payloads]
    lines += ['{"schema": null, "payload": null}' for payload in payloads if payload["op"] == "d"]
    random.Random(len(lines)).shuffle(lines)
    for part in (0, 1):
        (directory / f"part-{part}.json").write_text("\n".join(lines[part::2]) + "\n")


def write_parquet(directory: Path, payloads: list[dict[str, Any]]) -> None:
    """Write the payloads alone, as a converter without schemas leaves them, as one Parquet file in another order."""
    directory.mkdir(parents=True)
    row = pl.Struct({"id": pl.Int64, "customer": pl.String, "amount": pl.Int64})
    frame = pl.DataFrame(payloads, schema_overrides={"before": row, "after": row})
    frame.sample(fraction=1, shuffle=True, seed=3).write_parquet(directory / "part-0.parquet")
