"""The sizes and the numbers of entries with which those of a checkpoint are compared."""

from types import SimpleNamespace
from typing import Any

from statelib.definition.parts.quality import Drift
from statelib.flows.gate.check_facts import trends_of
from statelib.model.checkpoint import SnapshotKind
from statelib.model.state import StateDescriptor, StateKind
from statelib.model.types import LONG


def test_the_size_of_a_restored_savepoint_is_no_size_of_a_checkpoint() -> None:
    kinds = [(SnapshotKind.CHECKPOINT, 200), (SnapshotKind.CHECKPOINT, 210), (SnapshotKind.SAVEPOINT, 150)]
    history: Any = [SimpleNamespace(kind=kind, size_bytes=size) for kind, size in kinds]
    opened: Any = SimpleNamespace(metadata_size_bytes=20)
    manifest: Any = SimpleNamespace(files=[SimpleNamespace(size_bytes=200)])
    deployment: Any = None
    pipeline: Any = SimpleNamespace(checks=SimpleNamespace(drift=Drift(size_bytes={"most": 0.2})))
    (trend,) = trends_of(deployment, pipeline, history, opened, manifest)
    assert (trend.before, trend.current) == ((200, 210), 220)


def manifest_of(**entries: int) -> Any:
    """Return a manifest with this number of entries per state."""
    pairs = [(StateDescriptor(n, StateKind.VALUE, LONG), SimpleNamespace(total_entries=e)) for n, e in entries.items()]
    return SimpleNamespace(statistics_by_state=lambda: pairs)


def with_states(*states: StateDescriptor) -> Any:
    drift, names = Drift(entries={"most": 0.2}), dict.fromkeys(state.name for state in states)
    return SimpleNamespace(
        checks=SimpleNamespace(drift=drift), states=names, schema=lambda: SimpleNamespace(states=list(states))
    )


def test_timers_and_sets_of_sessions_have_no_trend() -> None:
    declared = StateDescriptor("n", StateKind.VALUE, LONG)
    manifest = manifest_of(**{"n": 100, "merging-window-set_n": 40})
    deployment: Any = None
    trends = trends_of(deployment, with_states(declared), [], SimpleNamespace(), manifest)
    assert [(trend.subject, trend.current) for trend in trends] == [("n", 100)]


def test_the_entries_of_a_renamed_state_are_compared_with_those_of_its_former_name() -> None:
    opened: Any = SimpleNamespace(manifest=manifest_of(visits=9))
    deployment: Any = SimpleNamespace(open=lambda record: opened)
    present = StateDescriptor("hits", StateKind.VALUE, LONG, renamed_from=("visits",))
    pipeline = with_states(present)
    history: Any = [SimpleNamespace(kind=SnapshotKind.CHECKPOINT)]
    (trend,) = trends_of(deployment, pipeline, history, opened, manifest_of(hits=3))
    assert (trend.subject, trend.before, trend.current) == ("hits", (9,), 3)
