"""Row P22: a batch of a user function that touches 0.05 % of the keys, in a run whose host has no copy of the state. It
reads single blocks of RocksDB's tables, against a run that fetches the state.

The storage is the S3 endpoint of the tests, on this machine. A turn is the run of all subtasks, without Spark and the
gate. The bytes of the touched blocks are those of the blocks that hold a key of the batch; read are the bytes that the
subtasks report, with the list of tables, the indexes of tables and what lies between blocks. CPU time is that of this
process: the endpoint, a Python program, needs more for a request than a storage service does."""

import os
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any
from unittest.mock import patch

import pyarrow.parquet as pq

from statelib.formats.sst.sorted_table import Table
from statelib.formats.sst.table_blocks import BlockEntries
from statelib.formats.sst.table_index import Block
from statelib.savepoints.opened import Checkpoint
from tests.benchmarks.checks import expected
from tests.benchmarks.events import batch_directory, new_deployment, new_pipeline, write_batches
from tests.benchmarks.in_process import Subtasks
from tests.benchmarks.measure import Contender, Ratio, take_turns
from tests.benchmarks.rows.user_functions import STATE
from tests.benchmarks.rows.warm_restore import INTERPRETER
from tests.support.s3_endpoint import s3_endpoint

ROWS = ("P22",)
KEYS = 8_000_000
TOUCHED = 0.0005


def run(_: Iterable[str], root: Path, runs: int, scale: float) -> list[Ratio]:
    what, against = "0.05 % batch of a user function from S3, touched entries", "fetching the state"
    if not INTERPRETER.exists():
        return [Ratio("P22", what, against, "-", "cpu s", (), (), note="no .work/endpoint: make setup")]
    keys = max(int(KEYS * scale), 20_000)
    events = max(int(keys * TOUCHED), 10)
    write_batches(root, 1, keys)
    write_batches(root, runs + 2, events, keys=keys, first=1)
    with s3_endpoint(INTERPRETER) as endpoint, patch.dict(os.environ, endpoint.environment):
        endpoint.make_bucket("touched")
        sides = {reads: Cold(root, reads) for reads in ("touched", "whole")}
        take_turns({name: side.contender() for name, side in sides.items()}, runs + 1, 1)
        totals = {name: side.totals() for name, side in sides.items()}
    right = expected([batch_directory(root, number) for number in range(runs + 2)])[:2]
    correct = all(total == right for total in totals.values())
    note = f"{events:,} events onto {right[0]:,} keys" if correct else f"INVALID, expected {right}, found {totals}"
    blocks = tuple(size / 1e6 for size in sides["touched"].block_bytes[2:])
    read, fetched = ([size / 1e6 for size in sides[name].bytes_read[2:]] for name in ("touched", "whole"))
    return [
        Ratio("P22", "bytes that it reads", "bytes of the touched blocks", "≤ 2", "MB", tuple(read), blocks, note=note),
        Ratio("P22", "bytes that it reads", against, "-", "MB", tuple(read), tuple(fetched)),
        Ratio("P22", what, against, "-", "cpu s", tuple(sides["touched"].cpu_s[2:]), tuple(sides["whole"].cpu_s[2:]),
              note="of the subtasks' own process"),
    ]  # fmt: skip


class Cold:
    """A pipeline whose storage is a bucket, on a host that keeps nothing. ``reads``: its setting of that name."""

    def __init__(self, root: Path, reads: str) -> None:
        self._root = root
        own = root / reads
        own.mkdir()
        deployment = replace(new_deployment(own), storage_root=f"s3://touched/{reads}", data=str(root / "data"))
        settings = f"reads: {reads}, materialize_after_bytes: 1073741824"
        pipeline = new_pipeline(own, "rocksdb", "changelog", state=STATE, settings=settings)
        self._subtasks = Subtasks(deployment, pipeline)
        self.bytes_read: list[int] = []
        self.block_bytes: list[int] = []
        self.cpu_s: list[float] = []
        self._opened: Checkpoint

    def contender(self) -> Contender:
        return Contender(lambda _: self._apply(), self._before, self._after)

    def _before(self, number: int) -> None:
        self._subtasks.prepare(number, pq.read_table(batch_directory(self._root, number)))

    def _apply(self) -> None:
        with counted_blocks() as sizes:
            began = time.process_time()
            self._subtasks.apply()
            self.cpu_s.append(time.process_time() - began)
        self.block_bytes.append(sum(sizes))

    def _after(self, _: int) -> None:
        self._opened = self._subtasks.finish()
        restores = [report.restored for report in self._subtasks.reports]
        self.bytes_read.append(sum(restore.size_bytes for restore in restores if restore))

    def totals(self) -> tuple[int, int]:
        """Return the numbers of keys and of events of the state after the last turn."""
        values = self._opened.to_arrow("activity", self._subtasks.deployment.work_directory)["value"].to_pylist()
        return len(values), sum(value["events"] for value in values)


@contextmanager
def counted_blocks() -> Iterator[list[int]]:
    """Yield a list that gets the size of each block that is read by itself."""
    sizes: list[int] = []
    read: Callable[..., BlockEntries] = Table.read_apart

    def counting(table: Table, blocks: Sequence[Block], *arguments: Any) -> BlockEntries:
        sizes.extend(block.length for block in blocks)
        return read(table, blocks, *arguments)

    with patch.object(Table, "read_apart", counting):
        yield sizes
