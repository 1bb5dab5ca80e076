"""Operator state through snapshot and restore: deep copies, no leftovers, rescaling."""

from decimal import Decimal as Number
from pathlib import Path

import numpy as np
import pytest

from statelib.backends.heap.backend import HeapKeyedStateBackend
from statelib.backends.operator.state import OperatorStateBackend
from statelib.coordinator.operator_assignment import redistribute
from statelib.errors import InvalidRequestError, RetryableError
from statelib.model.handles import OperatorStreamStateHandle, RelativeFileStateHandle
from statelib.model.ids import AttemptId, CheckpointId
from statelib.model.key_groups import KeyGroupRange
from statelib.model.operator_state import OperatorStateDescriptor, OperatorStateMode
from statelib.model.types import BYTES, LONG, STRING, Decimal, Field, ListOf, MapOf, Row
from statelib.restore.operator import OperatorRestoreSource, restore_operator
from statelib.snapshots.strategies.canonical import CanonicalSnapshotStrategy
from statelib.snapshots.strategies.operator import OperatorStateCopy, OperatorStateSnapshotStrategy
from statelib.snapshots.strategy import EMPTY, take_snapshot
from statelib.snapshots.subtask import SubtaskSnapshotStrategy
from statelib.storage.closeables import CloseableRegistry
from statelib.storage.filesystem.reader import DirectoryReader
from statelib.storage.local.store import LocalStateStore
from statelib.testing.checkpoint_chain import CheckpointChain
from statelib.testing.faulty_streams import FaultyStreams
from statelib.testing.keyed_samples import fill, sample_schema

ID = CheckpointId(1)
POINT = Row((Field("x", LONG), Field("tags", ListOf(STRING))))
SEEN = OperatorStateDescriptor("seen", OperatorStateMode.SPLIT_DISTRIBUTE, POINT)
ALL = OperatorStateDescriptor("all", OperatorStateMode.UNION, STRING)
RULES = OperatorStateDescriptor("rules", OperatorStateMode.BROADCAST, ListOf(LONG), STRING)
DATA = OperatorStateDescriptor("data", OperatorStateMode.UNION, BYTES)
POSITIONS = OperatorStateDescriptor(
    "positions", OperatorStateMode.UNION, Row((Field("at", ListOf(LONG)), Field("data", BYTES)))
)
STATES = (SEEN, ALL, RULES)


def point(x: int, *tags: str) -> dict[str, object]:
    return {"x": x, "tags": list(tags)}


def filled(subtask: int, points: int) -> OperatorStateBackend:
    backend = OperatorStateBackend(STATES)
    backend.list_state("seen").add_all(point(10 * subtask + i, "t") for i in range(points))
    backend.list_state("all").add(f"from {subtask}")
    backend.broadcast_state("rules").put("r", [1, 2])
    return backend


class Chain:
    """Checkpoints of operator state alone, each restored from the one before."""

    def __init__(self, root: Path, inline_threshold_bytes: int = 0) -> None:
        self.storage = CheckpointChain(root, inline_threshold_bytes)
        self.number = 0

    def through(self, backends: list[OperatorStateBackend], parallelism: int) -> list[OperatorStateBackend]:
        self.number += 1
        handles = [self.taken(backend, subtask) for subtask, backend in enumerate(backends)]
        reader = DirectoryReader(f"{self.storage.directory}/chk-{self.number}")
        parts = redistribute(handles, parallelism)
        return [restore_operator(STATES, [OperatorRestoreSource(h, reader) for h in part]) for part in parts]

    def taken(self, backend: OperatorStateBackend, subtask: int) -> OperatorStreamStateHandle | None:
        streams = self.storage.streams(self.number, subtask)
        result = take_snapshot(OperatorStateSnapshotStrategy(backend), ID, streams, CloseableRegistry())
        assert result.keyed is None
        return result.operator


def xs(backend: OperatorStateBackend) -> list[int]:
    return [element["x"] for element in backend.list_state("seen").get()]


@pytest.mark.parametrize("threshold", [0, 1 << 20], ids=["files", "inline"])
def test_operator_state_is_rescaled_from_two_to_three_to_one(tmp_path: Path, threshold: int) -> None:
    chain = Chain(tmp_path / "storage", threshold)
    three = chain.through([filled(0, 4), filled(1, 3)], 3)
    assert [xs(backend) for backend in three] == [[0, 1, 2], [3, 10], [11, 12]]
    assert [b.list_state("all").get() for b in three] == [["from 0", "from 1"]] * 3
    assert [b.broadcast_state("rules").items() for b in three] == [[("r", [1, 2])]] * 3
    for subtask, backend in enumerate(three):
        backend.list_state("all").update([f"again {subtask}"])
        backend.broadcast_state("rules").put("s", [])
        backend.list_state("seen").add(point(100 + subtask))
    (one,) = chain.through(three, 1)
    assert xs(one) == [0, 1, 2, 100, 3, 10, 101, 11, 12, 102]
    assert one.list_state("seen").get()[0] == point(0, "t")
    assert one.list_state("all").get() == ["again 0", "again 1", "again 2"]
    assert one.broadcast_state("rules").items() == [("r", [1, 2]), ("s", [])]


def test_changes_after_prepare_are_not_in_the_snapshot(tmp_path: Path) -> None:
    backend = filled(0, 2)
    element, rule = backend.list_state("seen").get()[0], backend.broadcast_state("rules").get("r")
    strategy = OperatorStateSnapshotStrategy(backend)
    chain = CheckpointChain(tmp_path / "storage")
    resources = strategy.prepare(ID)
    element["x"] = -1
    element["tags"].append("late")
    rule.append(3)
    backend.list_state("seen").add(point(7))
    backend.list_state("all").clear()
    result = strategy.run(resources, ID, chain.streams(1), CloseableRegistry())
    assert result.operator is not None
    assert isinstance(result.operator.stream, RelativeFileStateHandle)
    source = OperatorRestoreSource(result.operator, DirectoryReader(f"{chain.directory}/chk-1"))
    restored = restore_operator(STATES, [source])
    assert restored.list_state("seen").get() == [point(0, "t"), point(1, "t")]
    assert restored.list_state("all").get() == ["from 0"]
    assert restored.broadcast_state("rules").items() == [("r", [1, 2])]
    assert xs(backend) == [-1, 1, 7], "and the live state goes on"


def test_added_elements_stay_the_callers() -> None:
    backend = OperatorStateBackend([POSITIONS, RULES])
    buffer, memory, rule = np.array([1, 2]), bytearray(b"ab"), [1, 2]
    positions = {"at": buffer, "data": memory}
    state = backend.list_state("positions")
    state.update([positions])
    for number in (3, 4):
        buffer[0] = number
        state.add(positions)
    state.add_all({"at": buffer, "data": memory} for buffer[0] in (5, 6))
    state.add({"at": [7], "data": b""})
    backend.broadcast_state("rules").put("r", rule)
    buffer[:], memory[:], rule[:] = -1, b"--", [-1]
    elements, rules = (content.values.to_pylist() for content in backend.freeze())
    assert [element["at"] for element in elements] == [[1, 2], [3, 2], [4, 2], [5, 2], [6, 2], [7]]
    assert [element["data"] for element in elements] == [b"ab"] * 5 + [b""]
    assert rules == [[1, 2]]


def test_memory_of_the_caller_is_copied_or_refused() -> None:
    backend = OperatorStateBackend([DATA, POSITIONS])
    memory = bytearray(b"ab")
    backend.list_state("data").add(memoryview(memory))
    memory[:] = b"--"
    assert backend.freeze()[0].values.to_pylist() == [b"ab"]
    with pytest.raises(InvalidRequestError, match=r"operator state 'positions'.*copied") as caught:
        backend.list_state("positions").add({"at": [1], "data": memoryview(memory)})
    assert caught.value.kind == "bad-operator-state"


def test_without_registered_states_the_result_is_empty(tmp_path: Path) -> None:
    chain = CheckpointChain(tmp_path / "storage")
    result = take_snapshot(
        OperatorStateSnapshotStrategy(OperatorStateBackend()), ID, chain.streams(1), CloseableRegistry()
    )
    assert result is EMPTY
    assert chain.files() == set()


def test_keyed_and_operator_state_are_both_written_or_neither(tmp_path: Path) -> None:
    chain = CheckpointChain(tmp_path / "storage")
    keyed = HeapKeyedStateBackend(sample_schema(), KeyGroupRange(32, 95))
    fill(keyed)
    strategy = SubtaskSnapshotStrategy(CanonicalSnapshotStrategy(keyed), OperatorStateSnapshotStrategy(filled(0, 2)))
    calm = FaultyStreams(chain.streams(1), lambda _: None)
    result = take_snapshot(strategy, ID, calm, CloseableRegistry())
    assert result.keyed is not None
    assert result.operator is not None
    assert len(chain.files()) == len(result.streams) == 2
    for failing in range(len(calm.operations)):
        before = chain.files()

        def fail(number: int, failing: int = failing) -> None:
            if number == failing:
                raise RetryableError("no", kind="test")

        with pytest.raises(RetryableError):
            take_snapshot(strategy, ID, FaultyStreams(chain.streams(1), fail), CloseableRegistry())
        assert chain.files() == before


def test_the_frozen_view_is_released_when_the_other_part_fails() -> None:
    """Requirement R136: no frozen view stays behind."""
    copies: list[OperatorStateCopy] = []

    class Recording(OperatorStateSnapshotStrategy):
        """The strategy of operator state, which records for the test what it prepares."""

        def prepare(self, checkpoint_id: CheckpointId) -> OperatorStateCopy:
            copies.append(super().prepare(checkpoint_id))
            assert copies[-1].contents != ()
            return copies[-1]

    keyed = HeapKeyedStateBackend(sample_schema(), KeyGroupRange(0, 127))
    keyed.close()
    strategy = SubtaskSnapshotStrategy(CanonicalSnapshotStrategy(keyed), Recording(filled(0, 1)))
    with pytest.raises(InvalidRequestError):
        strategy.prepare(ID)
    assert [copy.contents for copy in copies] == [()]


def test_operator_state_has_no_local_copy(tmp_path: Path) -> None:
    """Requirement R71: the keyed state alone is kept on the worker's disk."""
    local = LocalStateStore(str(tmp_path), "file:///storage", "suite").directories(AttemptId("0" * 32), 0)
    chain = CheckpointChain(tmp_path / "storage")
    keyed = HeapKeyedStateBackend(sample_schema(), KeyGroupRange(32, 95))
    fill(keyed)
    strategy = SubtaskSnapshotStrategy(
        CanonicalSnapshotStrategy(keyed, local=local), OperatorStateSnapshotStrategy(filled(0, 2))
    )
    result = take_snapshot(strategy, ID, chain.streams(1), CloseableRegistry())
    assert result.operator is not None
    copies = {written.handle: written.local_name for written in result.streams}
    assert copies.pop(result.operator.stream) is None
    assert all(copies.values()), "the keyed state has one"
    assert len(copies) == 1
    local.complete(ID, result.streams)


def test_a_name_cannot_be_used_for_two_kinds_of_state() -> None:
    backend = OperatorStateBackend([SEEN])
    assert backend.register(SEEN) is backend.list_state("seen")
    for other in (
        OperatorStateDescriptor("seen", OperatorStateMode.UNION, POINT),
        OperatorStateDescriptor("seen", OperatorStateMode.SPLIT_DISTRIBUTE, LONG),
        OperatorStateDescriptor("seen", OperatorStateMode.BROADCAST, POINT, LONG),
    ):
        with pytest.raises(InvalidRequestError) as caught:
            backend.register(other)
        assert caught.value.kind == "operator-state-kind"
    with pytest.raises(InvalidRequestError, match="expected a broadcast state"):
        backend.broadcast_state("seen")
    with pytest.raises(InvalidRequestError, match="known are seen"):
        backend.list_state("sene")


@pytest.mark.parametrize("bad", ["text", None, 1 << 63, {"y": 1}], ids=str)
def test_the_error_for_a_value_of_the_wrong_type_names_the_state(bad: object) -> None:
    backend = OperatorStateBackend([OperatorStateDescriptor("n", OperatorStateMode.UNION, LONG)])
    backend.list_state("n").add_all([1, bad])
    with pytest.raises(InvalidRequestError, match="operator state 'n'") as caught:
        backend.freeze()
    assert caught.value.kind == "bad-operator-state"


@pytest.mark.parametrize(
    ("value", "problem"),
    [
        ({"x": 1.5}, "1.5 is no whole number"),
        ({"x": 1, "tagz": ["t"]}, "it has no field 'tagz'"),
        ({"x": 2.0, "tags": None}, ""),
    ],
)
def test_a_value_that_would_lose_a_part_is_refused(value: dict[str, object], problem: str) -> None:
    backend = OperatorStateBackend([SEEN, OperatorStateDescriptor("m", OperatorStateMode.UNION, MapOf(STRING, POINT))])
    for name, element in (("seen", value), ("m", {"a": value}), ("m", [("a", value)])):
        backend.list_state("seen").clear()
        backend.list_state(name).update([element])
        if not problem:
            backend.freeze()
            continue
        with pytest.raises(InvalidRequestError, match=problem) as caught:
            backend.freeze()
        assert caught.value.kind == "bad-operator-state"


def test_a_changed_declaration_is_refused_and_a_new_state_is_empty(tmp_path: Path) -> None:
    chain = CheckpointChain(tmp_path / "storage")
    result = take_snapshot(OperatorStateSnapshotStrategy(filled(0, 1)), ID, chain.streams(1), CloseableRegistry())
    assert result.operator is not None
    source = OperatorRestoreSource(result.operator, DirectoryReader(f"{chain.directory}/chk-1"))
    renamed = OperatorStateDescriptor("seen", SEEN.mode, Row((Field("a", LONG), Field("b", ListOf(STRING)))))
    new = OperatorStateDescriptor("new", OperatorStateMode.UNION, LONG)
    restored = restore_operator([renamed, ALL, RULES, new], [source])
    assert restored.list_state("seen").get() == [{"a": 0, "b": ["t"]}], "names of fields are the pipeline's"
    assert restored.list_state("new").get() == []
    other = OperatorStateDescriptor("rules", RULES.mode, LONG, STRING)
    for states, kind in (([SEEN, ALL], "non-restored-state"), ([SEEN, ALL, other], "state-schema-changed")):
        with pytest.raises(InvalidRequestError, match="rules") as caught:
            restore_operator(states, [source])
        assert caught.value.kind == kind


def test_decimals_that_get_more_digits_keep_their_amount(tmp_path: Path) -> None:
    def declared(digits: Decimal) -> list[OperatorStateDescriptor]:
        prices = Row((Field("price", digits), Field("by_item", MapOf(STRING, digits))))
        limits = OperatorStateDescriptor("limits", OperatorStateMode.BROADCAST, digits, digits)
        return [OperatorStateDescriptor("prices", OperatorStateMode.UNION, prices), limits]

    amount, chain = Number("1.25"), CheckpointChain(tmp_path / "storage")
    backend = OperatorStateBackend(declared(Decimal(9, 2)))
    backend.list_state("prices").add({"price": amount, "by_item": {"a": amount}})
    backend.broadcast_state("limits").put(amount, amount)
    result = take_snapshot(OperatorStateSnapshotStrategy(backend), ID, chain.streams(1), CloseableRegistry())
    assert result.operator is not None
    source = OperatorRestoreSource(result.operator, DirectoryReader(f"{chain.directory}/chk-1"))
    restored = restore_operator(declared(Decimal(12, 4)), [source])
    assert restored.list_state("prices").get() == [{"price": amount, "by_item": [("a", amount)]}]
    assert restored.broadcast_state("limits").items() == [(amount, amount)]
    with pytest.raises(InvalidRequestError, match=r"operator state 'prices': .*decimal\(9, 1\)") as caught:
        restore_operator(declared(Decimal(9, 1)), [source])
    assert caught.value.kind == "state-schema-changed"
