"""A small checkpoint of every combination of backend, strategy and form, taken through the flows, with its expected
content."""

import shutil
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import pyarrow as pa

from statelib.flows.checkpoint.steps import register
from statelib.flows.savepoint.steps import begin_savepoint
from statelib.flows.wiring import Deployment
from statelib.model.handles import (
    ByteStreamStateHandle,
    IncrementalRemoteKeyedStateHandle,
    OperatorStreamStateHandle,
    materialized_parts,
)
from statelib.model.operator_state import OperatorStateDescriptor
from statelib.model.state import StateStatistics
from statelib.restore.check import check_content
from statelib.restore.live.keyed import restore_heap, restore_rocksdb
from statelib.restore.operator import OperatorRestoreSource, restore_operator
from statelib.savepoints.opened import Checkpoint, open_checkpoint
from statelib.storage.filesystem.reader import start_of
from tests.support.worlds import checkpoint_of, new_deployment, publish_here

SHOPS = """\
name: shops
source: {{path: "{{data}}/{{start}}-{{end}}", columns: {{shop: string, item: string, amount: long}}}}
key: [shop]
states:
  best: {{kind: reducing, value: {{agg: max, of: amount}}}}
  per_item: {{kind: map, user_key: item, value: {{agg: count}}}}
backend: {backend}
parallelism: 2
max_parallelism: 8
checkpoint: {{strategy: {strategy}, inline_threshold_bytes: {inline}, file_merging: {{enabled: {merged}}}}}
"""
UID = "00000000-0000-0000-0000-000000000000"


@dataclass(frozen=True)
class Way:
    """A combination of backend, strategy and form. ``savepoint``: the format of a savepoint of a full checkpoint; ''
    if the checkpoint itself is tested."""

    backend: str
    strategy: str
    savepoint: str = ""
    inline: int = 0
    merged: bool = False

    def __str__(self) -> str:
        extra = (f"savepoint-{self.savepoint}" * bool(self.savepoint), "inline" * bool(self.inline))
        return "-".join(filter(None, (self.backend, self.strategy, *extra, "merged" * self.merged)))


WAYS = (
    Way("heap", "canonical"),
    Way("heap", "full"),
    Way("rocksdb", "canonical"),
    Way("rocksdb", "full"),
    Way("rocksdb", "incremental"),
    Way("heap", "changelog"),
    Way("rocksdb", "changelog"),
    Way("heap", "full", savepoint="canonical"),
    Way("heap", "full", savepoint="native"),
    Way("rocksdb", "full", savepoint="native"),
    Way("heap", "canonical", inline=1 << 20),
    Way("rocksdb", "incremental", merged=True),
)


@dataclass(frozen=True)
class Stored:
    """A stored snapshot. ``files``: all of its files, ``_metadata`` first."""

    way: Way
    deployment: Deployment
    directory: Path
    files: tuple[Path, ...]
    whole: tuple[StateStatistics, ...]

    def open(self) -> Checkpoint:
        return open_checkpoint(str(self.directory), own=True, storage_root=self.deployment.storage_root)

    def not_read(self) -> list[tuple[Path, range]]:
        """Return the file and range of each RocksDB OPTIONS file. A restore writes these files itself and does not read
        their content."""
        parts = [part for handle in self.open().handles() for part in (handle, *materialized_parts(handle))]
        handles = [part for part in parts if isinstance(part, IncrementalRemoteKeyedStateHandle)]
        return [
            (
                self.directory / stream.path.removeprefix("file://"),
                range(start_of(stream), start_of(stream) + stream.size_bytes),
            )
            for handle in handles
            for name, stream in handle.private
            if name.startswith("OPTIONS-") and not isinstance(stream, ByteStreamStateHandle)
        ]

    def restore(self) -> bool:
        """Restore like the next run: each handle in its own subtask, then operator state. Everything is read. Return
        whether it equals the written state."""
        opened, scratch = self.open(), Path(self.deployment.work_directory) / "restored"
        statistics = []
        try:
            for number, source in enumerate(opened.sources()):
                restore = restore_heap
                if self.way.backend == "rocksdb":
                    restore = partial(restore_rocksdb, directory=str(scratch / str(number)), backend_uid=UID)
                with suppress(FileNotFoundError):
                    shutil.rmtree(scratch)
                backend = restore(source.schema, source.handle.key_group_range, [source])
                check_content(backend)
                statistics += [
                    (s.key_group_range, s.entries.tolist(), s.digests.tolist()) for s in backend.statistics()
                ]
                backend.close()
        finally:
            shutil.rmtree(scratch, ignore_errors=True)
        restore_operator(*_operator(opened))
        return statistics == [
            (cut.key_group_range, cut.entries.tolist(), cut.digests.tolist()) for cut in _cuts(opened, self.whole)
        ]


def _cuts(opened: Checkpoint, whole: Sequence[StateStatistics]) -> Iterator[StateStatistics]:
    for handle in opened.handles():
        owned = handle.key_group_range
        cut = slice(owned.start, owned.end + 1)
        yield from (StateStatistics(owned, s.entries[cut], s.digests[cut]) for s in whole)


def _operator(opened: Checkpoint) -> tuple[tuple[OperatorStateDescriptor, ...], list[OperatorRestoreSource]]:
    held = [state.operator for operator in opened.operators for _, state in operator.subtasks]
    reader = opened.reader()
    return (), [OperatorRestoreSource(h, reader) for h in held if isinstance(h, OperatorStreamStateHandle)]


def stored(root: Path, way: Way) -> Stored:
    """Make two checkpoints below ``root``, and return the second, or a savepoint of it."""
    deployment = shops(root, way)
    for number in (1, 2):
        last = checkpoint_of(deployment, "shops", number, events(number))
    directory = deployment.catalog().get(deployment.pipeline("shops").name, last).directory
    if way.savepoint:
        directory = _savepoint(deployment, way.savepoint)
    opened = open_checkpoint(directory, own=True, storage_root=deployment.storage_root)
    assert opened.manifest is not None
    place = Path(directory.removeprefix("file://"))
    named = {place / file.path.removeprefix("file://") for file in opened.manifest.files}
    assert bool(named) is not bool(way.inline)
    return Stored(way, deployment, place, (place / "_metadata", *sorted(named)), opened.manifest.statistics)


def shops(root: Path, way: Way) -> Deployment:
    """Return a deployment in ``root`` with the single pipeline ``shops``."""
    pipelines = root / "pipelines"
    pipelines.mkdir(parents=True)
    text = SHOPS.format(backend=way.backend, strategy=way.strategy, inline=way.inline, merged=str(way.merged).lower())
    (pipelines / "shops.yaml").write_text(text)
    return new_deployment(root, root, pipelines)


def _savepoint(deployment: Deployment, form: str) -> str:
    pipeline = deployment.pipeline("shops")
    begun = begin_savepoint(deployment, pipeline, format=form, target=None, note="", owner="test", key=form)
    publish_here(deployment, pipeline, begun.checkpoint_id)
    return register(deployment, pipeline, begun.checkpoint_id).directory


def events(number: int) -> pa.Table:
    """Return twelve events of some shops."""
    numbers = range(number * 12, number * 12 + 12)
    return pa.table(
        {
            "shop": [f"shop-{n % (5 + number)}" for n in numbers],
            "item": [("tea", "café")[n % 2] for n in numbers],
            "amount": pa.array([n * 37 % 101 for n in numbers], pa.int64()),
        }
    )
