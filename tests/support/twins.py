"""Pipelines of one definition in one deployment whose settings differ, and which are given the same history."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pyarrow as pa

from statelib.flows.restore.steps import apply_restore, plan_restore
from statelib.functions.change_logs.changes import APPLIED, CHANGE, DELETED
from statelib.model.checkpoint import CheckpointManifest
from statelib.model.ids import CheckpointId, PipelineName
from statelib.model.record import ClaimMode
from statelib.savepoints.opened import Checkpoint
from tests.support.worlds import checkpoint_of, new_deployment

DELETES = "source: {delete_when: \"item = 'i0'\", "


class Twins:
    """Some pipelines with states of ``user``. ``file``: their file, with the words NAME, PARALLELISM and those of
    ``settings``, which are replaced: words and values by the name of each pipeline."""

    def __init__(self, root: Path, file: str, settings: Mapping[str, Mapping[str, str]]) -> None:
        (root / "pipelines").mkdir()
        self.root, self.file, self.settings = root, file, settings
        self.deployment = new_deployment(root, root, root / "pipelines")
        self.rescale(2)
        self.day = 0
        self.days: dict[CheckpointId, int] = {}
        self.checkpoints: list[dict[str, CheckpointId]] = []

    def rescale(self, parallelism: int) -> None:
        self.parallelism = parallelism
        for name, words in self.settings.items():
            self.write(name, words)

    def write(self, name: str, words: Mapping[str, str]) -> None:
        """Write the file of a pipeline."""
        text = self.file.replace("NAME", name).replace("PARALLELISM", str(self.parallelism))
        for word, value in words.items():
            text = text.replace(word, value)
        (self.root / "pipelines" / f"{name}.yaml").write_text(text)

    def run(self, users: list[int]) -> None:
        """Apply a day with one event per user."""
        self.day += 1
        self.apply(self.events(users))

    def events(self, users: list[int]) -> pa.Table:
        """Return the events of the present day, one per user."""
        events = pa.table(
            {
                "user": [f"u{n}" for n in users],
                "item": [f"i{(n + self.day) % 3}" for n in users],
                "price": pa.array([n * (self.day % 4) for n in users], pa.int64()),
                "at": pa.array([self.day * 100 + i for i in range(len(users))], pa.int64()),
            }
        )
        if DELETES in self.file:
            changes = [DELETED if (n + self.day) % 3 == 0 else APPLIED for n in users]
            events = events.append_column(CHANGE, pa.array(changes, pa.int8()))
        return events

    def apply(self, events: pa.Table) -> None:
        """Apply the events of the present day."""
        self.took({name: checkpoint_of(self.deployment, name, self.day, events) for name in self.settings})

    def took(self, made: dict[str, CheckpointId]) -> None:
        """Note a checkpoint of each pipeline, and compare them."""
        self.checkpoints.append(made)
        self.days.update(dict.fromkeys(made.values(), self.day))
        self.compare()

    def restore(self, number: int) -> None:
        if not self.checkpoints:
            return
        chosen = self.checkpoints[number % len(self.checkpoints)]
        for name, checkpoint in chosen.items():
            pipeline = self.deployment.pipeline(name)
            plan = plan_restore(self.deployment, pipeline, str(checkpoint), None, ClaimMode.NO_CLAIM)
            apply_restore(self.deployment, pipeline, plan, "test")
            self.day = self.days[checkpoint]
        self.compare()

    def compare(self) -> None:
        """Assert that all pipelines have the same states, and that their manifests have the right number of keys."""
        states = self.deployment.pipeline(next(iter(self.settings))).states
        one, *others = ({state: rows(self.opened(name), state) for state in states} for name in self.settings)
        assert all(other == one for other in others)
        keys = {str(row["key"]) for entries in one.values() for row in entries}
        for name in self.settings:
            assert manifest(self.opened(name)).total_keys in (None, len(keys))

    def opened(self, name: str) -> Checkpoint:
        """Return the head of a pipeline."""
        catalog, pipeline = self.deployment.catalog(), PipelineName(name)
        head = catalog.head(pipeline).head
        assert head is not None
        return self.deployment.open(catalog.get(pipeline, head))


def manifest(opened: Checkpoint) -> CheckpointManifest:
    assert opened.manifest is not None
    return opened.manifest


def counts(opened: Checkpoint) -> Any:
    """Return what the manifest says about the entries and the keys."""
    stored = manifest(opened)
    assert stored.keys is not None
    by_state = [(each.entries.tolist(), each.digests.tolist()) for each in stored.statistics]
    return stored.keys.keys.tolist(), by_state


def rows(opened: Checkpoint, state: str) -> list[dict[str, Any]]:
    """Return the entries of a state in an order of their own."""
    return sorted(opened.to_arrow(state).to_pylist(), key=repr)
