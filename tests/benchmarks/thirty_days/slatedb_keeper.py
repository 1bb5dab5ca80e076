"""SlateDB: a key-value store on an object storage, here on the file system. The environment is ``.work/rivals``.

The values of the day's keys are looked up, and the new ones put in one batch. Its merge operator would leave the state
unread, but calls Python four times for each value, which costs twice as much in all."""

import asyncio
import struct
from pathlib import Path

import polars as pl
from slatedb.uniffi import Db, DbBuilder, FlushOptions, FlushType, KeyRange, ObjectStore, WriteBatch

from tests.benchmarks.checks import state_of_batch
from tests.benchmarks.state_columns import COLUMNS
from tests.benchmarks.thirty_days.keeper import Mode

KEY, NUMBERS = struct.Struct(">q"), struct.Struct("<qdq")


class SlateDb:
    """A database whose memory table is written to the storage at the end of each day."""

    def __init__(self, root: Path, mode: Mode) -> None:
        self._loop = asyncio.new_event_loop()
        self._path = str(root / "database").lstrip("/")
        self._database: Db = self._loop.run_until_complete(self._open())

    async def _open(self) -> Db:
        return await DbBuilder(self._path, ObjectStore.resolve("file:///")).build()

    def day(self, number: int, batch: Path) -> None:
        events = state_of_batch(batch).select(COLUMNS).collect()
        self._loop.run_until_complete(self._apply(events, is_new=number == 0))

    async def _apply(self, events: pl.DataFrame, *, is_new: bool) -> None:
        keys = [KEY.pack(key) for key in events["key"]]
        values = [None] * len(keys) if is_new else await asyncio.gather(*[self._database.get(key) for key in keys])
        batch = WriteBatch()
        for key, before, (_, count, amount, text, ts) in zip(keys, values, events.iter_rows(), strict=True):
            batch.put(key, _value(before, count, amount, text, ts))
        await (await self._database.write(batch)).await_durable()
        await self._database.flush_with_options(FlushOptions(flush_type=FlushType.MEM_TABLE))

    def export(self, target: Path) -> None:
        rows = self._loop.run_until_complete(self._rows())
        pl.DataFrame(rows, schema=COLUMNS, orient="row").write_parquet(target / "state.parquet")

    async def _rows(self) -> list[tuple[int, int, float, str, int]]:
        scan = await self._database.scan(KeyRange(start=None, start_inclusive=True, end=None, end_inclusive=False))
        rows: list[tuple[int, int, float, str, int]] = []
        while entries := await scan.next_batch(10_000):
            for entry in entries:
                events, amount, ts = NUMBERS.unpack_from(entry.value)
                rows.append((KEY.unpack(entry.key)[0], events, amount, entry.value[NUMBERS.size :].decode(), ts))
        return rows

    def close(self) -> None:
        self._loop.run_until_complete(self._database.shutdown())


def _value(before: bytes | None, events: int, amount: float, text: str, ts: int) -> bytes:
    """Return the value of a key after further events."""
    tail = text.encode()
    if before is not None:
        events_before, amount_before, ts_before = NUMBERS.unpack_from(before)
        events, amount = events + events_before, amount + amount_before
        if ts_before > ts:
            ts, tail = ts_before, before[NUMBERS.size :]
    return NUMBERS.pack(events, amount, ts) + tail
