"""Mermaid diagrams and tables inside written pages: the floors, the states of a checkpoint, and one picture per flow.

A page marks where a diagram belongs by two comments; the text between them is generated. The steps of a flow are
functions of the code, so a picture cannot name a function that does not exist.
"""

import ast
import inspect
import itertools
import re
import tomllib
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from statelib.catalog.commit.cleanup import Cleanup
from statelib.coordinator import checkpoint_lifecycle
from statelib.coordinator.checkpoint_lifecycle import TRANSITIONS, CheckpointEvent
from statelib.coordinator.pending_checkpoint import PendingCheckpoint
from statelib.flows.checkpoint import publishing, snapshot_plan
from statelib.flows.checkpoint import steps as checkpoint_steps
from statelib.flows.cleanup import garbage, orphans, retention
from statelib.flows.recovery import rebuild
from statelib.flows.restore import holding
from statelib.flows.restore import steps as restore_steps
from statelib.flows.savepoint import steps as savepoint_steps
from statelib.model.record import CheckpointState
from statelib.spark.snapshot import driver, rehearsal
from statelib.spark.snapshot.subtask import worker
from tools.reference.markdown import code, table

ROOT = Path(__file__).parents[2]
ROOMS_CONTRACT, SHELLS_CONTRACT = "rooms of statelib", "shells"
_ENTRY_POINTS = ("__main__", "cli")
"""Layers of the rooms' contract that the shells' contract draws."""


@dataclass(frozen=True)
class Step:
    """One arrow of a flow: ``actor`` calls ``function``, which reads or changes something at ``target``."""

    actor: str
    target: str
    function: Callable[..., object]
    meaning: str

    @property
    def place(self) -> str:
        """The name of the function and its file below ``statelib/``."""
        path = self.function.__module__.removeprefix("statelib.").replace(".", "/")
        return f"{self.function.__qualname__} in {path}.py"


FLOWS: dict[str, tuple[Step, ...]] = {
    "checkpoint": (
        Step("Airflow", "catalog", checkpoint_steps.begin, "take epoch and id, hold the files of the base"),
        Step("Airflow", "driver", driver.run_snapshot, "start the Spark job"),
        Step("driver", "catalog", snapshot_plan.plan_snapshot, "record the attempt"),
        Step("driver", "subtask", driver.run_subtasks, "send each event to the owner of its key group"),
        Step("subtask", "storage", worker.snapshot_subtask, "restore the base, apply the events, write files"),
        Step("subtask", "driver", PendingCheckpoint.acknowledge, "report files, counts and digests"),
        Step("driver", "storage", publishing.publish, "write _metadata if it is absent"),
        Step("Airflow", "storage", checkpoint_steps.check, "read everything back and judge it"),
        Step("Airflow", "catalog", checkpoint_steps.register, "commit - the checkpoint becomes the head"),
        Step("Airflow", "catalog", checkpoint_steps.abort, "only after a failure - mark it, delete nothing"),
    ),
    "savepoint": (
        Step("Airflow", "catalog", savepoint_steps.begin_savepoint, "take an id, hold the files of the head"),
        Step("Airflow", "driver", driver.run_snapshot, "start the Spark job, without events"),
        Step("driver", "catalog", snapshot_plan.plan_snapshot, "record the attempt"),
        Step("subtask", "storage", worker.snapshot_subtask, "restore the head, write it to the target"),
        Step("driver", "storage", publishing.publish, "write _metadata if it is absent"),
        Step("Airflow", "storage", checkpoint_steps.check, "read everything back and judge it"),
        Step("Airflow", "catalog", checkpoint_steps.register, "commit - the head stays where it is"),
    ),
    "restore": (
        Step("Airflow", "catalog", restore_steps.plan_restore, "show what would happen, change nothing"),
        Step("Airflow", "catalog", holding.hold_source, "keep the snapshot's files from cleanup"),
        Step("driver", "storage", rehearsal.rehearse, "restore all key groups, compare counts and digests"),
        Step("Airflow", "catalog", restore_steps.apply_restore, "commit - new head, new generation"),
        Step("Airflow", "catalog", holding.release_source, "the head is safe by itself"),
    ),
    "cleanup": (
        Step("Airflow", "catalog", retention.retire, "mark what the pipeline file no longer keeps"),
        Step("Airflow", "catalog", Cleanup.condemn, "one transaction - condemn files without a reference"),
        Step("Airflow", "storage", garbage.collect_garbage, "delete _metadata, then data, then the directory"),
        Step("Airflow", "storage", orphans.orphans, "find files of attempts that have ended"),
    ),
    "recovery": (
        Step("operator", "storage", rebuild.plan_rebuild, "read each _metadata, read whole what nothing vouches for"),
        Step("operator", "catalog", rebuild.apply_rebuild, "enter everything in one transaction"),
    ),
}
"""The flows and their steps, in order."""


def flow(name: str) -> str:
    """Return the sequence diagram of a flow."""
    lines = ["sequenceDiagram"]
    actors = dict.fromkeys(actor for step in FLOWS[name] for actor in (step.actor, step.target))
    lines += [f"    participant {actor}" for actor in actors]
    lines += [f"    {step.actor}->>{step.target}: {step.meaning}<br/>{step.place}" for step in FLOWS[name]]
    return mermaid(lines)


def floors() -> str:
    """Return the diagram of the layers in the import contracts of pyproject.toml."""
    contracts = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["tool"]["importlinter"][
        "contracts"
    ]
    layers = {contract["name"].split(":")[0]: contract.get("layers", []) for contract in contracts}
    shells = [layer.replace("statelib.", "") for layer in layers[SHELLS_CONTRACT][:2]]
    rooms = [layer for layer in layers[ROOMS_CONTRACT] if layer not in _ENTRY_POINTS]
    lines = ["flowchart TB"]
    for number, layer in enumerate([*shells, *rooms]):
        lines.append(f'    floor{number}["{layer}"]')
    lines.append("    " + " --> ".join(f"floor{number}" for number in range(len(shells) + len(rooms))))
    return mermaid(lines)


def checkpoint_states() -> str:
    """Return the state diagram of a checkpoint and the table of its transitions."""
    targets = set(TRANSITIONS.values())
    sources = {state for state, _ in TRANSITIONS}
    lines = ["stateDiagram-v2"]
    lines += [f"    [*] --> {state}" for state in CheckpointState if state not in targets]
    lines += [f"    {state} --> {target}: {event}" for (state, event), target in TRANSITIONS.items()]
    lines += [f"    {state} --> [*]" for state in CheckpointState if state not in sources]
    meanings = event_meanings()
    rows = [(state, code(event), target, meanings[event]) for (state, event), target in TRANSITIONS.items()]
    return mermaid(lines) + "\n" + table(("From", "Event", "To", "What has happened"), rows)


def event_meanings() -> dict[str, str]:
    """Return the docstring of each event of a checkpoint, by name."""
    tree = ast.parse(inspect.getsource(checkpoint_lifecycle))
    body = next(n for n in tree.body if isinstance(n, ast.ClassDef) and n.name == CheckpointEvent.__name__).body
    meanings = {}
    for assignment, text in itertools.pairwise(body):
        if isinstance(assignment, ast.Assign) and isinstance(text, ast.Expr):
            meanings[ast.unparse(assignment.targets[0])] = str(ast.literal_eval(text.value)).replace("``", "`")
    return meanings


def mermaid(lines: list[str]) -> str:
    """Return a fenced block with a Mermaid diagram."""
    return "\n".join(["```mermaid", *lines, "```", ""])


SECTIONS: dict[str, Callable[[], str]] = {
    "floors": floors,
    "checkpoint states": checkpoint_states,
    **{f"flow {name}": partial(flow, name) for name in FLOWS},
}
"""The function that makes each generated section, by the name in its comments."""
_SECTION = re.compile(r"(<!-- begin (?P<name>[\w ]+), written by `make docs` -->\n).*?(<!-- end -->)", re.DOTALL)


def with_sections(path: Path, names: tuple[str, ...]) -> str:
    """Return the text of a page with its generated sections made anew.

    Raise ValueError unless the page has exactly the sections ``names``.
    """
    text = path.read_text(encoding="utf-8")
    present = tuple(match["name"] for match in _SECTION.finditer(text))
    if sorted(present) != sorted(names):
        raise ValueError(f"{path.name}: expected the sections {sorted(names)}, found {sorted(present)}")
    return _SECTION.sub(lambda match: match[1] + SECTIONS[match["name"]]() + match[3], text)
