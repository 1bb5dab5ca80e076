"""Reports of the gate that contain the caller's words in every place where events, users and storage can put text."""

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import pyarrow as pa

from statelib.model.checkpoint import (
    CheckpointManifest,
    DataInterval,
    EventCounts,
    SnapshotKind,
    SourcePosition,
)
from statelib.model.ids import AttemptId, CheckpointId, Epoch, PipelineName
from statelib.model.key_groups import KeyGroupRange
from statelib.model.quality import Severity
from statelib.model.record import CheckpointRecord, CheckpointState, Owner
from statelib.model.state import KeyedStateSchema, StateDescriptor, StateKind, StateStatistics
from statelib.model.types import LONG, STRING
from statelib.quality.facts import CheckpointFacts, QualityReport, RehearsedRange, StateSample, UserExpectation
from statelib.quality.gate import run_gate
from statelib.storage.ports.inventory import FileFinding

GROUPS = KeyGroupRange(0, 1)
DAY = DataInterval(0, 86_400_000)


def report_over(words: Sequence[str], docs_directory: str) -> QualityReport:
    """Return the gate's report of a checkpoint that fails every check, with every word of ``words`` in every place."""
    return run_gate(facts_of(words), f"{docs_directory}/report")


def facts_of(words: Sequence[str]) -> CheckpointFacts:
    """Return the facts of a checkpoint in which names of states, files, keys, values, columns, parameters and error
    texts are these words."""
    states = tuple(StateDescriptor(_state(word), StateKind.VALUE, LONG) for word in words)
    recorded, read_back = (tuple(_statistics(entries) for _ in states) for entries in (1, 2))
    name, number, epoch, position = PipelineName("flights"), CheckpointId(3), Epoch(5), SourcePosition(DAY, 1)
    record = CheckpointRecord(
        name, number, SnapshotKind.CHECKPOINT, CheckpointState.PENDING, Owner.SYSTEM, epoch, "k", 1, None,
        DAY, f"strategy {words[0]}", 1, f"file:/state/{' '.join(words)}", 1,
    )  # fmt: skip
    manifest = CheckpointManifest(
        name, number, SnapshotKind.CHECKPOINT, f"another {words[-1]}", epoch, AttemptId("a" * 32), 1, None, 1,
        position, EventCounts(1, 1, 0), KeyedStateSchema(STRING, 2, states), (), recorded,
    )  # fmt: skip
    sample = _sample(words)
    return CheckpointFacts(
        record,
        manifest,
        (GROUPS,),
        tuple(FileFinding(word, GROUPS, 1, None, 0, None, "missing") for word in words),
        None,
        read_back,
        unreadable=" and ".join(words),
        samples={_state(word): replace(sample, state=_state(word)) for word in words[:2]},
        expectations=tuple(_expectations(words)),
        rehearsal=tuple(RehearsedRange(n, word, 1, f"trouble {word}") for n, word in enumerate(words)),
    )


def _state(word: str) -> str:
    """Return the name of a state that differs from the name of its page."""
    return f"state {word}"


def _sample(words: Sequence[str]) -> StateSample:
    """Return a sample with a column named after each word, whose values are all words."""
    columns = {"key": pa.array([f"key {word}" for word in words])}
    columns |= {f"column {word}": pa.array([f"value {w}" for w in words]) for word in words}
    return StateSample("", pa.table(columns), ("key",), len(words), note=f"of {words[0]}")


def _expectations(words: Sequence[str]) -> list[UserExpectation]:
    expectations = []
    for n, word in enumerate(words):
        asked = {"column": f"column {word}", "value_set": [f"none of {w}" for w in words]}
        expectations.append(
            _expectation(_state(words[n % 2]), "ExpectColumnValuesToBeInSet", f"in set {n} {word}", asked)
        )
    for n, word in enumerate((words[0], words[-1])):
        asked = {"column": f"column {word}", "regex": f"^not{n}$|{_quoted(word)}{{9}}not$"}
        expectations.append(
            _expectation(_state(words[n]), "ExpectColumnValuesToMatchRegex", f"matches {n} {word}", asked)
        )
        missing = {"column": f"no {n} column {word}", "min_value": 1}
        expectations.append(_expectation(_state(words[n]), "ExpectColumnMeanToBeBetween", f"mean {n} {word}", missing))
    return expectations


def _expectation(state: str, name: str, text: str, parameters: dict[str, object]) -> UserExpectation:
    return UserExpectation(state, name, text, parameters, Severity.WARN, needs_all_rows=False)


def _quoted(word: str) -> str:
    """Return the word as a set of characters: a regular expression that is valid for every word."""
    return "[" + "".join(f"\\{c}" if not c.isalnum() and c.isascii() else c for c in word or "x") + "]"


def _statistics(entries: int) -> StateStatistics:
    counted = np.array([entries, 1], np.int64)
    return StateStatistics(GROUPS, counted, counted.astype(np.uint64))
