"""One pipeline of a soak: its options, its storage and catalog, and the journal from which the content of its snapshots
follows."""

import json
import os
import random
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path

import pyarrow as pa

from statelib.definition.pipeline import Pipeline
from statelib.flows.wiring import Deployment
from statelib.model.ids import PipelineName
from tests.support.worlds import new_deployment

Content = dict[str, dict[object, int]]
"""The content by state: from key (of a map: shop and item) to value."""

STRATEGIES = (
    ("heap", "canonical"),
    ("heap", "full"),
    ("rocksdb", "full"),
    ("rocksdb", "incremental"),
    ("rocksdb", "incremental"),
    ("rocksdb", "changelog"),
    ("heap", "changelog"),
)
STATES = {
    "total": "{kind: value, value: {agg: sum, of: amount}}",
    "per_item": "{kind: map, user_key: item, value: {agg: count}}",
}
PIPELINE = """\
name: {name}
source: {{path: "{{data}}/{{start}}-{{end}}", columns: {{shop: string, item: string, amount: long}}}}
key: [shop]
states:
{states}
backend: {backend}
parallelism: {parallelism}
max_parallelism: 8
checkpoint:
  strategy: {strategy}
  local_recovery: {local}
  inline_threshold_bytes: {inline}
  file_merging: {{enabled: {merging}}}
  retain: {{count: {retain}}}
"""


@dataclass(frozen=True)
class Options:
    """The options that are drawn at random for one pipeline. ``storage``: '' for files, else the URI of a bucket;
    ``catalog``: its URL."""

    backend: str
    strategy: str
    states: tuple[str, ...]
    parallelism: int
    retain: int
    inline: int
    merging: bool
    local: bool
    storage: str
    catalog: str

    @staticmethod
    def drawn(chance: random.Random, storages: list[str], catalogs: list[str]) -> "Options":
        """Draw the options: mostly files, and the first of the ``catalogs``."""
        backend, strategy = chance.choice(STRATEGIES)
        return Options(
            backend=backend,
            strategy=strategy,
            states=chance.choice([("total",), ("total",), ("per_item",), ("total", "per_item")]),
            parallelism=chance.choice([1, 1, 1, 2, 3]),
            retain=chance.choice([1, 2, 3, 5]),
            inline=chance.choice([0, 0, 300]),
            merging=chance.random() < 0.15,
            local=chance.random() < 0.25,
            storage=chance.choice(storages) if storages and chance.random() < 0.1 else "",
            catalog=chance.choice(catalogs) if chance.random() < 0.3 else catalogs[0],
        )


@dataclass(frozen=True)
class Snapshot:
    """A snapshot in the journal. ``day``: the last applied day, 0 before the first."""

    base: int | None
    day: int
    kind: str
    generation: int


@dataclass
class Journal:
    """The expected state of a pipeline, in a file that every process appends to before and after what it does.

    Each line is one ``write``, so that a killed process leaves whole lines only. :meth:`read` reads the lines that
    were appended since."""

    path: Path
    offset: int = 0
    snapshots: dict[int, Snapshot] = field(default_factory=dict)
    done: set[int] = field(default_factory=set)
    excused: set[int] = field(default_factory=set)
    """The savepoints that a worker began to dispose of or to claim."""
    gone: set[int] = field(default_factory=set)
    """The snapshots that were registered and that cleanup has removed."""
    was_read: set[int] = field(default_factory=set)
    restores: int = 0
    counts: dict[str, int] = field(default_factory=dict)
    violations: list[str] = field(default_factory=list)
    _contents: dict[int, Content] = field(default_factory=dict)

    def write(self, *line: object) -> None:
        descriptor = os.open(self.path, os.O_WRONLY | os.O_APPEND | os.O_CREAT)
        os.write(descriptor, f"{json.dumps(line)}\n".encode())
        os.close(descriptor)

    def read(self) -> None:
        if not self.path.exists():
            return
        with self.path.open("rb") as file:
            file.seek(self.offset)
            lines = file.read()
        whole = lines[: lines.rfind(b"\n") + 1]
        self.offset += len(whole)
        for line in whole.splitlines():
            self._take(*json.loads(line))

    def _take(self, what: str, *values: object) -> None:
        self.counts[what] = self.counts.get(what, 0) + 1
        number = values[0] if values and isinstance(values[0], int) else 0
        if what == "begun":
            self._begun(number, Snapshot(*values[1:]))
        elif what == "done":
            self.done.add(number)
        elif what == "excused":
            self.excused.add(number)
        elif what == "read":
            self.was_read.add(number)
        elif what == "gone":
            self.gone.add(number)
        elif what == "restoring":
            self.restores += 1
        elif what == "violation":
            self.violations.append(str(values[0]))

    def _begun(self, number: int, snapshot: Snapshot) -> None:
        before = self.day(snapshot.base)
        expected = before + (snapshot.kind == "CHECKPOINT")
        if snapshot.day != expected or self.snapshots.setdefault(number, snapshot) != snapshot:
            self.violations.append(f"checkpoint {number} is {snapshot}, its base has applied day {before}")

    def day(self, number: int | None) -> int:
        return 0 if number is None else self.snapshots[number].day

    def content(self, number: int | None, states: tuple[str, ...], seed: int) -> Content:
        """Return the content that the snapshot must have: the content of its base, with the events of its day."""
        if number is None:
            return {state: {} for state in states}
        if number not in self._contents:
            snapshot = self.snapshots[number]
            before = self.content(snapshot.base, states, seed)
            events = events_of(seed, snapshot.day) if snapshot.kind == "CHECKPOINT" else []
            self._contents[number] = after(before, events)
        return self._contents[number]


Event = tuple[str, str, int]


def events_of(seed: int, day: int) -> list[Event]:
    """Return the day's few events, always the same; sometimes none."""
    chance = random.Random(f"{seed} {day}")
    number = 0 if chance.random() < 0.05 else chance.randrange(1, 24)
    return [
        (f"shop-{chance.randrange(25)}", f"item-{chance.randrange(4)}", chance.randrange(-50, 1000))
        for _ in range(number)
    ]


def table_of(events: list[Event]) -> pa.Table:
    shops, items, amounts = zip(*events, strict=True) if events else ((), (), ())
    return pa.table(
        {
            "shop": pa.array(shops, pa.string()),
            "item": pa.array(items, pa.string()),
            "amount": pa.array(amounts, "int64"),
        }
    )


def after(content: Content, events: list[Event]) -> Content:
    """Compute the state of the pipeline in a simple way."""
    now = {state: dict(values) for state, values in content.items()}
    for shop, item, amount in events:
        if "total" in now:
            now["total"][shop] = now["total"].get(shop, 0) + amount
        if "per_item" in now:
            now["per_item"][shop, item] = now["per_item"].get((shop, item), 0) + 1
    return now


@dataclass
class Lane:
    """A pipeline of its own, in ``root``. The files there outlive every process."""

    number: str
    root: Path
    options: Options
    seed: int

    def __post_init__(self) -> None:
        self.name = PipelineName(f"lane{self.number}")
        for part in ("pipelines", "savepoints"):
            (self.root / part).mkdir(parents=True)
        (self.root / "pipelines" / "lane.yaml").write_text(self._text())
        self.journal = Journal(self.root / "journal")
        self.chance = random.Random(self.seed)

    def _text(self) -> str:
        given: Mapping[str, object] = vars(self.options)
        states = "\n".join(f"  {state}: {STATES[state]}" for state in self.options.states)
        text = {key: str(value).lower() for key, value in given.items()}
        return PIPELINE.format(**{**text, "name": self.name, "states": states})

    def deployment(self) -> Deployment:
        deployment = new_deployment(self.root, self.root, self.root / "pipelines")
        return replace(
            deployment, catalog_url=self.options.catalog, storage_root=self.options.storage or deployment.storage_root
        )

    def pipeline(self) -> Pipeline:
        return self.deployment().pipeline(self.name)

    def content(self, number: int) -> Content:
        return self.journal.content(number, self.options.states, self.seed)
