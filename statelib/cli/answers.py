"""The keys of the JSON document of each command. Keys are added, and never removed or renamed.

``docs/reference/cli.md`` lists them, and a test compares them with what each command prints.
"""

from dataclasses import dataclass, fields

from statelib.catalog.views.history import CHECKPOINT_HISTORY
from statelib.flows.cleanup.explanation import Why
from statelib.flows.cleanup.orphans import Orphans
from statelib.flows.lifecycle.suspension import PipelineStatus
from statelib.flows.views.next_run import NextRun
from statelib.model.record import CheckpointRecord, PipelineHead
from statelib.savepoints.verification.snapshots import Verification


@dataclass(frozen=True)
class Answer:
    """The document of a command: one object with ``keys``, or with ``many`` a list of such objects."""

    keys: tuple[str, ...]
    many: bool = False


def _names(kind: type) -> tuple[str, ...]:
    return tuple(field.name for field in fields(kind))


_RECORD, _HEAD = _names(CheckpointRecord), _names(PipelineHead)
_SNAPSHOT = (
    "directory", "checkpoint_id", "metadata_version", "written_by", "operators", "left_out", "late_events",
    "events_without_user_key", "uploaded_bytes", "drained", "seed", "restored_from", "deltas", "side_data", "files",
)  # fmt: skip

ERROR = Answer(("error", "message", "hint"))
"""The document of any command that ends with an error; ``error`` is its kind."""
CHECKED = Answer(("file", "operators"))
"""The document of ``bootstrap --check``."""

ANSWERS = {
    "run": Answer(("pipeline", "group", "dry_run", "intervals", "checkpoints", "errors")),
    "publish": Answer(("pipeline", "dry_run", "commits", "tables")),
    "inspect": Answer(_SNAPSHOT),
    "hexdump": Answer(("file", "size_bytes", "notes", "parts")),
    "export": Answer(("files", "not_exported")),
    "query": Answer(("columns", "rows")),
    "verify": Answer((*_names(Verification), "subset_seed"), many=True),
    "gc": Answer(("dry_run", "retired", "collected", "without_file", "troubles")),
    "orphans": Answer(_names(Orphans), many=True),
    "why": Answer(_names(Why)),
    "bootstrap": Answer(("directory", "entries")),
    "history": Answer(tuple(CHECKPOINT_HISTORY), many=True),
    "restore": Answer(("plan", "applied", "head", "next", "command", "mend_again")),
    "mend": Answer(("plan", "states", "checkpoint")),
    "import-statestore": Answer(_RECORD),
    "checkpoints list": Answer((*_RECORD, "mends", "in_head_lineage", "gate"), many=True),
    "checkpoints show": Answer((*_RECORD, "mends", "quality", "snapshot")),
    "checkpoints diff": Answer(("before", "after", "keys_before", "keys_after", "states", "files")),
    "checkpoints release": Answer(_RECORD),
    "checkpoints dispose": Answer(("dry_run", "collected")),
    "pipelines list": Answer(("name", "path", "backend", "key", "states", "parallelism", "max_parallelism"), many=True),
    "pipelines validate": Answer(("valid", "faults", "warnings", "tried", "states")),
    "pipelines schema": Answer(("$schema", "title", "type", "properties", "required", "additionalProperties")),
    "pipelines fork": Answer(_RECORD),
    "pipelines seed": Answer(("plan", "dry_run", "checkpoint", "already_completed")),
    "pipelines plan": Answer(_names(NextRun)),
    "pipelines status": Answer((*_names(PipelineStatus), "tables")),
    "pipelines cancel": Answer(_HEAD),
    "pipelines stop": Answer((*_HEAD, "savepoint")),
    "pipelines resume": Answer(_HEAD),
    "pipelines discard": Answer(("dry_run", "collected")),
    "savepoint create": Answer(_RECORD),
    "savepoint dispose": Answer(("dry_run", "collected")),
    "savepoint rewrite": Answer(("directory",)),
    "catalog migrate": Answer(("catalog",)),
    "catalog check": Answer(("rows", "faults")),
    "catalog rebuild": Answer(("applied", "pipelines", "left_out")),
}
