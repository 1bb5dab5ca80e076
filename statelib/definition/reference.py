"""What each key of a pipeline file means, in words for its users; ``docs/reference/pipeline-yaml.md`` is made of it."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from statelib.definition.pipeline import Pipeline

_LIKE_A_FIELD = "states.<name>.value"
_SEVERITY = "What follows where it does not hold: a warning, quarantine, or the end of the checkpoint."
INTERNAL = {"path"}
"""Fields of :class:`Pipeline` that no file may have."""


@dataclass(frozen=True)
class Key:
    """``path``: dotted, with ``<name>`` where the file chooses the name. ``default`` '' : it has to be there."""

    path: str
    type: str
    default: str
    description: str


def keys() -> Iterator[Key]:
    """Every key that a pipeline file may have, in the order of the model."""
    document = Pipeline.model_json_schema()
    yield from _keys(document, document["$defs"], "")


def _keys(part: dict[str, Any], parts: dict[str, Any], prefix: str) -> Iterator[Key]:
    required = set(part.get("required", ()))
    for name, field in part["properties"].items():
        if name in INTERNAL and not prefix:
            continue
        path = f"{prefix}{name}"
        default = "" if name in required else _text(field.get("default"))
        yield Key(path, _type(field, parts), default, DESCRIPTIONS.get(path, ""))
        below = parts.get(_reference(field), {})
        if "properties" in below and path != _LIKE_A_FIELD:
            yield from _keys(below, parts, f"{path}.<name>." if field.get("type") == "object" else f"{path}.")


def _reference(field: dict[str, Any]) -> str:
    """The part that a field, one of its alternatives, or each of its values is."""
    for place in (field, *field.get("anyOf", ()), field.get("additionalProperties") or {}):
        if isinstance(place, dict) and "$ref" in place:
            return str(place["$ref"]).rpartition("/")[2]
    return ""


def _type(field: dict[str, Any], parts: dict[str, Any]) -> str:
    if "anyOf" in field:
        return " or ".join(_type(each, parts) for each in field["anyOf"] if each.get("type") != "null")
    if "$ref" in field:
        target = parts[field["$ref"].rpartition("/")[2]]
        return _type(target, parts) if "enum" in target else "mapping"
    if "enum" in field or "const" in field:
        return ", ".join(f"`{value}`" for value in field.get("enum", [field.get("const")]))
    if field.get("type") == "array":
        return f"list of {_type(field['items'], parts)}" if "items" in field else "list"
    return _plain_type(field) + _bounds(field)


def _plain_type(field: dict[str, Any]) -> str:
    named = {
        "string": "date or time" if field.get("format") == "date-time" else "text",
        "integer": "integer", "number": "number", "boolean": "`true`, `false`", "object": "mapping of names",
    }  # fmt: skip
    return named.get(str(field.get("type")), "anything")


def _bounds(field: dict[str, Any]) -> str:
    low, high = field.get("minimum"), field.get("maximum")
    if low is None and high is None:
        return ""
    return f" ≥ {low}" if high is None else f" {low} to {high}"


def _text(value: object) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    if value is None:
        return "none"
    if isinstance(value, dict):
        return "see below" if value else "none"
    return "none" if value in ([], "") else str(value)


DESCRIPTIONS = {
    "name": "Of the pipeline, hence of its DAGs, its directory on storage, and its state's operator without `uid`.",
    "uid": "What the operator's id is made of, as `uid()` in Flink; the name unless given.",
    "uid_hash": "The operator's id itself, 32 hexadecimal digits, as `setUidHash()` in Flink.",
    "renamed_from": "Names and uids that the pipeline had before; its history is gone on from.",
    "description": "For people: shown in Airflow.",
    "schedule": "When Airflow runs the pipeline. Without it, by hand only.",
    "schedule.cron": "A cron expression or a preset such as `@daily`: each run applies the interval between two ticks.",
    "schedule.start": "Where the first interval begins; UTC unless it says otherwise.",
    "schedule.end": "No interval begins after it.",
    "schedule.catchup": "Whether Airflow makes up for the intervals between `start` and today by itself.",
    "source": "Where events come from.",
    "source.format": "Any batch format that Spark reads.",
    "source.path": "Of one interval: a template with `{data}` (`STATELIB_DATA`), `{start}` and `{end}` (times in UTC; "
    "`{start:%Y-%m-%d}` formats them).",
    "source.on_missing": "What a path that is not there, or holds no files, means: an error, or an interval without "
    "events.",
    "source.ready": "How it is seen that an interval's events are complete: all that is given has to hold. Without it "
    "whatever is there is complete. The DAG waits, `statelib run` refuses.",
    "source.ready.marker": "A file in the interval's directory, such as `_SUCCESS`; or a path of its own, a template "
    "that begins with `{data}`, `/` or a scheme.",
    "source.ready.min_age": "How long nothing there has changed, such as `10m`.",
    "source.ready.next_interval": "The path of the schedule's next interval exists.",
    "source.ready.asset": "The URI of an Airflow asset that was updated after the interval's end.",
    "source.ready.poke_interval": "How often the DAG looks.",
    "source.ready.timeout": "How long the DAG waits before it fails.",
    "source.columns": "The columns that are read, and their types: `boolean`, `byte`, `short`, `int`, `long`, `float`, "
    "`double`, `string`, `bytes`, `date`, `datetime` (without a zone), `instant`.",
    "key": "The column, or columns, that state is kept by.",
    "on_null_key": "What becomes of an event without a key: the run fails, or the event is dropped and counted.",
    "on_gap": "Whether an interval may be left out: by default the run is refused, because its events would be lost.",
    "states": "The states of each key, by name.",
    "states.<name>.kind": "Flink's kinds of state.",
    "states.<name>.fields": "What the state holds, where it is a row: aggregates or types, by name.",
    "states.<name>.fields.<name>.agg": "The aggregate: `count`, `sum`, `min`, `max`, `avg`, `first`, `last`, "
    "`collect`, `distinct`, `histogram`.",
    "states.<name>.fields.<name>.of": "The column that is aggregated. Of `first` and `last` also a list: all columns "
    "are taken from one and the same event, nulls included.",
    "states.<name>.fields.<name>.by": "Of `first` and `last`: the columns that say which event was first.",
    "states.<name>.fields.<name>.nulls": "Of `first` and `last`: `skip` (the default) takes the first or last value "
    "that is not null; `keep` takes that of the first or last event, null if it is null there.",
    "states.<name>.fields.<name>.bounds": "Of `histogram`: the upper bounds of its buckets.",
    "states.<name>.fields.<name>.type": "Instead of `agg`, where a function computes it; `name: long` is short for it.",
    "states.<name>.fields.<name>.renamed_from": "What the field was called in older checkpoints.",
    "states.<name>.value": "Instead of `fields`, where the state is one bare value; has the same keys as a field.",
    "states.<name>.user_key": "Of a map: the column of its keys.",
    "states.<name>.function": "`package.module:name`, a function of two Arrow tables, events and state, that gives the "
    "rows to write.",
    "states.<name>.on_timer": "`package.module:name`, called for the timers that `function` sets when they are due.",
    "states.<name>.window": "Keep the state by windows of event time, too.",
    "states.<name>.window.time": "The column that says when an event was.",
    "states.<name>.window.tumbling": "The size of windows that follow each other, such as `1h`.",
    "states.<name>.window.sliding": "Windows that overlap.",
    "states.<name>.window.sliding.size": "How long one is.",
    "states.<name>.window.sliding.slide": "After what time the next one begins.",
    "states.<name>.window.session": "Refused: sessions are kept by a function with timers.",
    "states.<name>.window.allowed_lateness": "How long after its end a window takes events; later ones are counted.",
    "states.<name>.window.retain": "How long after that a window can be read; then it is cleared.",
    "states.<name>.ttl": "How long an entry lives after its last access, such as `30d`.",
    "states.<name>.update": "What counts as an access; `on_create_and_write` unless given.",
    "states.<name>.renamed_from": "What the state was called in older checkpoints.",
    "operator_states": "States of a subtask instead of a key, by name; functions reach them by a third parameter.",
    "operator_states.<name>.mode": "After rescaling each element goes to one subtask (`list`), or all go to all "
    "(`union`); a `broadcast` map is the same everywhere.",
    "operator_states.<name>.element": "Type of the elements of a list or a union.",
    "operator_states.<name>.key": "Type of the keys of a broadcast map.",
    "operator_states.<name>.value": "Type of its values.",
    "hooks": "Functions `(context, operator)` that are called once in every subtask, with or without events.",
    "hooks.initialize_state": "`package.module:name`, called when the subtask is restored, before its first event.",
    "hooks.snapshot_state": "`package.module:name`, called when events are applied and timers have fired, before the "
    "snapshot is taken; in savepoints too.",
    "backend": "Where live state is kept: in memory as columns, or in RocksDB on the worker's disk.",
    "parallelism": "Subtasks, each of which owns a range of key groups. A restore can set another one.",
    "max_parallelism": "Key groups; fixed for the life of the state, and the job's own where Flink restores it.",
    "checkpoint": "How checkpoints are written, and for how long they are kept.",
    "checkpoint.strategy": "`full` (the backend's own form), `canonical` (any backend's, and Flink's), `incremental` "
    "(rocksdb: only new SST files), `changelog` (only what changed). Default: heap canonical, rocksdb full.",
    "checkpoint.inline_threshold_bytes": "A stream up to this size lives within `_metadata` instead of a file.",
    "checkpoint.materialize_after_bytes": "Of `changelog`: before a log gets larger, the state is written whole.",
    "checkpoint.materialize_after_checkpoints": "Of `changelog`: the same after so many checkpoints.",
    "checkpoint.retain": "What retention keeps of the state's history. Savepoints are the user's and do not count.",
    "checkpoint.retain.count": "The newest so many checkpoints.",
    "checkpoint.retain.days": "Besides, all of so many days before the newest but one.",
    "checkpoint.retain.after_termination": "What becomes of the rest when the pipeline has ended; else it is kept.",
    "checkpoint.local_recovery": "Each host keeps copies of what it wrote, and restores from them first.",
    "checkpoint.file_merging": "A subtask's small files are put into few.",
    "checkpoint.file_merging.enabled": "Whether they are.",
    "checkpoint.file_merging.max_file_size_bytes": "Of such a file.",
    "checkpoint.file_merging.max_space_amplification": "How many times larger than what is still needed a file may be.",
    "checkpoint.timeout_s": "How long one attempt may take, its Spark job included.",
    "checkpoint.tolerable_failures": "So many checkpoints may fail in a row before no more are begun.",
    "checkpoint.execution": "Whether the time of writing a snapshot, by a thread of its own, is asynchronous.",
    "checks": "What the gate judges besides completeness: [The gate](../gate.md).",
    "checks.drift": "How far a checkpoint may be from those before it.",
    "checks.drift.entries": "Of the number of entries.",
    "checks.drift.entries.severity": _SEVERITY,
    "checks.drift.entries.most": "The largest change, such as `20%`, beyond what the steps before let expect.",
    "checks.drift.size_bytes": "Of its size.",
    "checks.drift.size_bytes.severity": _SEVERITY,
    "checks.drift.size_bytes.most": "As of `entries`.",
    "checks.drift.null_rate": "Of the share of nulls, by `state.field`.",
    "checks.drift.null_rate.<name>.severity": _SEVERITY,
    "checks.drift.null_rate.<name>.most": "By how much the share may differ from the base's.",
    "checks.drift.distribution": "Of the values, by `state.field`, against the base's.",
    "checks.drift.distribution.<name>.severity": _SEVERITY,
    "checks.drift.distribution.<name>.psi": "The largest population stability index.",
    "checks.drift.history": "How many earlier checkpoints `entries` and `size_bytes` look at.",
    "checks.expectations": "Great Expectations' own: `state`, `expect` (its name in snake_case), its parameters, "
    "`severity` (`fail` unless given).",
    "checks.rehearse_every": "Each checkpoint whose number it divides is restored on trial.",
    "checks.sample_rows": "Larger states are judged by a sample of whole key groups of about so many rows.",
    "alerts": "Who is told when a run fails or is late: [Airflow](../airflow.md).",
    "alerts.notify": "Airflow notifiers: `notifier`, a class by its dotted name, and its `arguments`. None: the log.",
    "alerts.deadline": "A run that is not over so long after it was queued is told about, such as `6h`.",
    "retries": "How Airflow tries a task again.",
    "retries.count": "How often.",
    "retries.delay_s": "How long it waits before.",
    "allow_non_restored_state": "Stored states that the file does not have any more may be left out.",
}
