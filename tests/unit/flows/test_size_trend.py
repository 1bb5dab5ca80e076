"""The sizes with which the size of a checkpoint is compared."""

from types import SimpleNamespace
from typing import Any

from statelib.definition.parts.quality import Drift
from statelib.flows.gate.check_facts import trends_of
from statelib.model.checkpoint import SnapshotKind


def test_the_size_of_a_restored_savepoint_is_no_size_of_a_checkpoint() -> None:
    kinds = [(SnapshotKind.CHECKPOINT, 200), (SnapshotKind.CHECKPOINT, 210), (SnapshotKind.SAVEPOINT, 150)]
    history: Any = [SimpleNamespace(kind=kind, size_bytes=size) for kind, size in kinds]
    opened: Any = SimpleNamespace(metadata_size_bytes=20)
    manifest: Any = SimpleNamespace(files=[SimpleNamespace(size_bytes=200)])
    deployment: Any = None
    (trend,) = trends_of(deployment, Drift(size_bytes={"most": 0.2}), history, opened, manifest)
    assert (trend.before, trend.current) == ((200, 210), 220)
