"""Descriptions of the keys of a pipeline file. ``docs/reference/pipeline-yaml.md`` is generated from them."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

from statelib.aggregates.kinds import AGGREGATES, Aggregate
from statelib.definition.pipeline import Pipeline

LIKE = {"sources.<name>": "source", "states.<name>.value": "states.<name>.fields.<name>"}
"""The parts that have the keys of another part, by their paths."""
_SEVERITY = "The result if the check fails: a warning, quarantine, or the abort of the checkpoint."
INTERNAL = {"path"}
"""Fields of :class:`Pipeline` that no file may have."""


def _aggregates(has: Callable[[Aggregate], bool] = lambda _: True) -> str:
    """Return the names of the aggregates that have a property, as text."""
    return ", ".join(f"`{name}`" for name, aggregate in AGGREGATES.items() if has(aggregate))


@dataclass(frozen=True)
class DescribedKey:
    """One key of a pipeline file. ``path``: its path with dots, and ``<name>`` for a name that the file chooses.
    ``default``: '' if the key is required."""

    path: str
    type: str
    default: str
    description: str


def keys() -> Iterator[DescribedKey]:
    """Yield every key that a pipeline file may have, in the order of the model."""
    document = Pipeline.model_json_schema()
    yield from _keys(document, document["$defs"], "")


def _keys(part: dict[str, Any], parts: dict[str, Any], prefix: str) -> Iterator[DescribedKey]:
    required = set(part.get("required", ()))
    for name, field in part["properties"].items():
        if name in INTERNAL and not prefix:
            continue
        path = f"{prefix}{name}"
        default = "" if name in required else _text(field.get("default"))
        yield DescribedKey(path, _type(field, parts), default, DESCRIPTIONS.get(path, ""))
        below = parts.get(_reference(field), {})
        inner = f"{path}.<name>" if field.get("type") == "object" else path
        if "properties" in below and inner not in LIKE:
            yield from _keys(below, parts, f"{inner}.")


def _reference(field: dict[str, Any]) -> str:
    """Return the name of the part that is the field's type, or the type of an alternative or of its values; '' if there
    is none."""
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
    "name": "The name of the pipeline. Its DAGs, its directory on storage and (without `uid`) its operator "
    "have it too.",
    "group": "The name of a group of small pipelines, written in the file of each. One Spark job takes the snapshots "
    "of all of them. [More](../spark.md#many-small-pipelines).",
    "uid": "The text that the operator's id is computed from, like `uid()` in Flink. Default: the name.",
    "uid_hash": "The operator's id itself, 32 hexadecimal digits, like `setUidHash()` in Flink.",
    "renamed_from": "Earlier names and uids of the pipeline. Their history is continued.",
    "description": "A text for people. Airflow shows it.",
    "schedule": "When Airflow runs the pipeline. Without it, or with `manual`, the pipeline is run by hand only.",
    "schedule.cron": "A cron expression or a preset such as `@daily`. Each run applies the interval between two ticks.",
    "schedule.asset": "The URI of an Airflow asset, instead of `cron`: each update of it starts a run, whose interval "
    "the update names, or which ends at its time. [More](../airflow.md#runs-that-an-asset-starts).",
    "schedule.time_zone": "The zone of `cron`, such as `Europe/Berlin`; a day of it may have 23 or 25 hours. `{start}` "
    "and `{end}` of the source are then in this zone, too. Default: UTC. "
    "[More](../sources.md#intervals-in-a-time-zone).",
    "schedule.start": "The start of the first interval, or for an asset of the first events, in `schedule.time_zone` "
    "or UTC unless it has an offset.",
    "schedule.end": "No interval begins after this time. If updates of an asset name no intervals, the last one ends "
    "at this time.",
    "schedule.catchup": "Whether Airflow also runs the intervals between `start` and today.",
    "source": "The source of the events, if there is only one.",
    "sources": "Several sources by name, instead of `source`. Each has the keys of `source`, its own place, conditions "
    "and columns: [Sources](../sources.md#several-sources).",
    "source.format": "Any batch format that Spark reads. Default: `parquet`.",
    "source.path": "The path of one interval: a template with `{data}` (`STATELIB_DATA`), `{start}` and `{end}` (times "
    "in `schedule.time_zone` or UTC; `{start:%Y-%m-%d}` formats them).",
    "source.table": "A table of Spark's catalog, instead of `path`: Iceberg, Delta, Hive or a view, by the name that "
    "Spark has for it. A template like `path`.",
    "source.options": "Options of the format, as Spark names them: `header` of CSV, `url` and `query` of JDBC. The "
    "values are templates like `path`; `{env[NAME]}` is a variable of the Spark driver's environment, for passwords.",
    "source.file_schema": "The columns that the files can have, and their types, as Spark's `CREATE TABLE` takes "
    "them: `payload STRUCT<op: STRING, after: STRUCT<id: BIGINT>>`. Without it, Spark finds them in the files of each "
    "interval: [Sources](../sources.md#files-with-options).",
    "source.incremental": "Whether a run reads the commits to a table (`format: delta` with `path`, or "
    "`format: iceberg` with `table`) since those that the state has, instead of dated events: "
    "[Sources](../sources.md#new-commits-of-a-table).",
    "source.each": "Each element of a list is an event: an expression in Spark's SQL for the list, by the name of the "
    "column that has the element: `{line: payload.lines}`. Several are applied in their order, for lists within lists.",
    "source.where": "A condition in Spark's SQL on the source's own columns. A template like `path`, for example "
    "`at >= '{start}' AND at < '{end}'`. It bounds an interval's events if no path does.",
    "source.delete_when": "A condition in Spark's SQL on the source's own columns, such as `op = 'd'`. An event for "
    "which it holds deletes its key: the key's state is cleared, and only its events after the delete are applied.",
    "source.changes": "The events are the changes of a log: rows that were inserted, updated or deleted. Rows that a "
    "change replaces are taken back: [Change logs](../sources.md#change-logs). `changes: op` is short for "
    "`changes: {op: op}`.",
    "source.changes.op": "An SQL expression for the operation: `+I`, `-U`, `+U`, `-D` (Flink), `c`, `r`, `u`, `d` "
    "(Debezium), `insert`, `update_preimage`, … (Delta), `INSERT`, `UPDATE_BEFORE`, … (Iceberg).",
    "source.changes.before": "The row before the change, if each event has both: `payload.before`.",
    "source.changes.after": "The row after the change: `payload.after`. Columns without `expr` are fields "
    "of these rows.",
    "source.time_zone": "The zone of the source's times without a zone, such as `Europe/Berlin`. With it, a column of "
    "such times can be declared as `instant`, and a column of instants as `datetime`.",
    "source.on_missing": "Whether a path that does not exist, or has no files, is an error or an interval without "
    "events. The directory `STATELIB_DATA` must exist in any case.",
    "source.ready": "The conditions for an interval's events to be complete. All given conditions must hold. Without "
    "conditions, events are complete at any time. The DAG waits for them; `statelib run` fails if they do not hold.",
    "source.ready.marker": "This file exists: a name in the interval's directory, such as `_SUCCESS`, or a path of its "
    "own, a template that begins with `{data}`, `/` or a scheme.",
    "source.ready.min_age": "No file at the path has changed for this long, such as `10m`.",
    "source.ready.next_interval": "The path of the schedule's next interval exists.",
    "source.ready.asset": "This Airflow asset (a URI) was updated after the interval's end.",
    "source.ready.poke_interval": "The time between two checks by the DAG.",
    "source.ready.timeout": "How long the DAG waits before it fails.",
    "source.columns": "The columns that are read, and their types: `boolean`, `byte`, `short`, `int`, `long`, `float`, "
    "`double`, `string`, `bytes`, `date`, `datetime` (without a zone), `instant`, and for functions `list<...>`, "
    "`map<..., ...>` and `row<name: type, ...>` of them. `name: long` is short for `name: {type: long}`.",
    "source.columns.<name>.type": "The type.",
    "source.columns.<name>.expr": "An expression in Spark's SQL that computes the column from the source's own "
    "columns: `amount * price`, `payload.after.id`. Its value is cast to the type; a value that does not fit "
    "fails the run.",
    "order_by": "The columns that say whether an event comes before or after a delete of its key, for `delete_when`: "
    "a time, the position in a log. Every source has them.",
    "key": "The key column, or a list of key columns. State is kept per key.",
    "on_null_key": "Whether an event without a key fails the run, or is dropped and counted. An event without the "
    "`user_key` of a map fails the run, too, or is left out of this map alone and counted; "
    "`statelib inspect` shows how many.",
    "on_gap": "Whether an interval may be left out. By default the run is refused, because its events would be lost.",
    "states": "The states that are kept per key, by name.",
    "states.<name>.kind": "One of Flink's kinds of state.",
    "states.<name>.fields": "The fields of the state if it is a row: aggregates or types, by name.",
    "states.<name>.fields.<name>.agg": f"The aggregate: {_aggregates()}. "
    "[What each computes](../states.md#aggregates).",
    "states.<name>.fields.<name>.of": "The column that is aggregated. For "
    f"{_aggregates(lambda each: each.takes_together)} it may be a list: all columns are taken from the same event, "
    "nulls included.",
    "states.<name>.fields.<name>.by": f"For {_aggregates(lambda each: each.takes_by)}: the columns that order the "
    "events.",
    "states.<name>.fields.<name>.nulls": "For `first` and `last`: `skip` (the default) takes the first or last value "
    "that is not null; `keep` takes the value of the first or last event, which may be null.",
    "states.<name>.fields.<name>.bounds": "For `histogram`: the upper bounds of its buckets.",
    "states.<name>.fields.<name>.n": "For `top` and `bottom`: how many events are stored.",
    "states.<name>.fields.<name>.limit": "For `collect` and `distinct`: how many values to store, the least ones.",
    "states.<name>.fields.<name>.half_life": "For `decay`: the time in which a value loses half of its weight.",
    "states.<name>.fields.<name>.where": "A boolean column: only events for which it is true count. "
    "`{agg: count, where: refunded}` counts the refunds. Compute the column with `expr` in `source.columns`.",
    "states.<name>.fields.<name>.type": "The field's type, instead of `agg`, if a function computes the field. The "
    "short form is `name: long`.",
    "states.<name>.fields.<name>.renamed_from": "Names of the field in older checkpoints.",
    "states.<name>.value": "The content of the state, instead of `fields`, if it is one bare value. It has the keys of "
    "a field.",
    "states.<name>.user_key": "For a map: the column of its keys.",
    "states.<name>.function": "`package.module:name`: a function of two Arrow tables, events and state, that returns "
    "the rows to write.",
    "states.<name>.on_timer": "`package.module:name`: a function that is called when timers of `function` are due.",
    "states.<name>.window": "Windows of event time. State is then kept per key and window.",
    "states.<name>.window.time": "The column with the time of an event.",
    "states.<name>.window.tumbling": "The size of windows that follow each other, such as `1h`.",
    "states.<name>.window.sliding": "Windows that overlap.",
    "states.<name>.window.sliding.size": "The length of a window.",
    "states.<name>.window.sliding.slide": "The time between the starts of two windows.",
    "states.<name>.window.session": "Windows that end when a key has had no event for so long, such as `30m`.",
    "states.<name>.window.allowed_lateness": "How long after its end a window takes events. Later events are counted.",
    "states.<name>.window.retain": "How long after that a window can be read. Then it is cleared.",
    "states.<name>.ttl": "How long an entry lives after its last access, such as `30d`.",
    "states.<name>.update": "The operations that count as an access. Default: `on_create_and_write`.",
    "states.<name>.renamed_from": "Names of the state in older checkpoints.",
    "operator_states": "States that are kept per subtask instead of per key, by name. Functions get them as third "
    "parameter.",
    "operator_states.<name>.mode": "The distribution after rescaling: each element goes to one subtask (`list`), every "
    "subtask gets all elements (`union`), or every subtask has the same map (`broadcast`).",
    "operator_states.<name>.element": "The type of the elements of a list or a union.",
    "operator_states.<name>.key": "The type of the keys of a broadcast map.",
    "operator_states.<name>.value": "The type of the values of a broadcast map.",
    "side_data": "Names of bytes that functions and hooks keep from run to run, such as a model: "
    "`operator.side_data(name)`.",
    "outputs": "Rows that are emitted beside the state, by the name of the output: "
    "[Outputs](../states.md#outputs-rows-beside-the-state).",
    "outputs.<name>.columns": "The types of the columns of rows that functions emit, by name: those that a column of a "
    "source may have.",
    "outputs.<name>.closed": "A state with session windows: each session is emitted when it is closed. In place of "
    "`columns`.",
    "hooks": "Functions `(context, operator)` that are called once in every subtask, with or without events.",
    "hooks.initialize_state": "`package.module:name`: called after the subtask is restored, before its first event.",
    "hooks.snapshot_state": "`package.module:name`: called after events are applied and timers have fired, before the "
    "snapshot is taken, also for savepoints.",
    "backend": "The backend of live state: columns in memory (`heap`), or RocksDB on the worker's disk (`rocksdb`).",
    "parallelism": "The number of subtasks. Each subtask owns a range of key groups. A restore can change the number.",
    "max_parallelism": "The number of key groups. It is fixed for the life of the state. If a Flink job restores the "
    "state, it must be equal to the job's.",
    "checkpoint": "How checkpoints are written, and how long they are kept.",
    "checkpoint.strategy": "`full` (the backend's own form), `canonical` (a form that each backend and Flink can "
    "restore), `incremental` (rocksdb: only new SST files), `changelog` (only the changes). Default: `canonical` for "
    "heap, `full` for rocksdb.",
    "checkpoint.inline_threshold_bytes": "A stream up to this size is part of `_metadata` instead of a file.",
    "checkpoint.materialize_after_bytes": "For `changelog`: before a log becomes larger than this, the whole state is "
    "written.",
    "checkpoint.materialize_after_checkpoints": "For `changelog`: the whole state is written after this number of "
    "checkpoints.",
    "checkpoint.blind": "For `changelog`: whether a run leaves the state unread and writes only the accumulators of "
    "its events. They are merged with the state when it is read or written as a whole. States must be values and maps "
    "of aggregates.",
    "checkpoint.mendable": "For how long checkpoints keep what each interval did to the state, so that it can be "
    "corrected without a replay of the later ones, for example `30d`. States must be of aggregates.",
    "checkpoint.reads": "For `changelog`: `whole` (a run reads its state as a whole), `touched` (only the entries of "
    "keys that have events, for backend rocksdb) or `auto` (what costs less).",
    "checkpoint.retain": "The checkpoints that retention keeps. Savepoints belong to users and do not count.",
    "checkpoint.retain.count": "Keep the newest N checkpoints.",
    "checkpoint.retain.days": "Keep also all checkpoints of the last N days before the second newest checkpoint.",
    "checkpoint.retain.after_termination": "Whether retention deletes the checkpoints when the pipeline has ended. By "
    "default it keeps them.",
    "checkpoint.local_recovery": "Whether each host keeps copies of the files that it wrote, and restores from them "
    "first.",
    "checkpoint.file_merging": "Merging of a subtask's small files into few larger files.",
    "checkpoint.file_merging.enabled": "Whether small files are merged.",
    "checkpoint.file_merging.max_file_size_bytes": "The largest size of a merged file.",
    "checkpoint.file_merging.max_space_amplification": "The largest quotient of a merged file's size and the bytes in "
    "it that are still needed.",
    "checkpoint.timeout_s": "How long one attempt may take, including its Spark job.",
    "checkpoint.tolerable_failures": "How many checkpoints may fail in a row before no more begin.",
    "checkpoint.execution": "Whether the time to write a snapshot counts as asynchronous or synchronous.",
    "checks": "The gate's checks besides completeness: [The gate](../gate.md).",
    "checks.read_back": "What the gate reads besides what is new: `all`, or a part of what earlier checkpoints have "
    "proved: [What is read back](../gate.md#what-is-read-back).",
    "checks.read_back.rotate": "The part of the known files that each run reads again: with `1/20`, all of them are "
    "read within 20 runs. It is also the largest part of the key groups whose entries a run decodes.",
    "checks.read_back.entries": "The number of entries of known files that a run decodes, as the mean over all runs. A "
    "run that applied more events decodes as many entries as events.",
    "checks.in_job_from_bytes": "If at least this number of stored bytes is to be read back or to be restored as a "
    "test, tasks of the Spark job do it, and the Airflow task does not.",
    "checks.drift": "How far a checkpoint may differ from the checkpoints before it.",
    "checks.drift.entries": "The drift of the number of entries.",
    "checks.drift.entries.severity": _SEVERITY,
    "checks.drift.entries.most": "The largest difference, such as `20%`, from the number that the trend predicts.",
    "checks.drift.size_bytes": "The drift of the checkpoint's size.",
    "checks.drift.size_bytes.severity": _SEVERITY,
    "checks.drift.size_bytes.most": "The largest difference, such as `20%`, from the size that the trend predicts.",
    "checks.drift.null_rate": "The drift of the share of nulls, by `state.field`.",
    "checks.drift.null_rate.<name>.severity": _SEVERITY,
    "checks.drift.null_rate.<name>.most": "The largest difference from the share in the base checkpoint.",
    "checks.drift.distribution": "The drift of the distribution of values, by `state.field`.",
    "checks.drift.distribution.<name>.severity": _SEVERITY,
    "checks.drift.distribution.<name>.psi": "The largest population stability index against the base checkpoint.",
    "checks.drift.history": "The number of earlier checkpoints in the trend of `entries` and `size_bytes`.",
    "checks.expectations": "Expectations of Great Expectations: `state`, `expect` (the name in snake_case), its "
    "parameters, `severity` (default `fail`).",
    "checks.rehearse_every": "Every Nth checkpoint, by its number, is restored as a test.",
    "checks.sample_rows": "For states with more rows, the gate reads a sample of whole key groups with about this "
    "number of rows.",
    "publish": "The tables that every registered checkpoint is published to, by name: "
    "[Published tables](../publish.md).",
    "publish.<name>.target": "The directory of the table: an absolute path or a place in a bucket, with "
    "`{data}` for `STATELIB_DATA`. For Iceberg: `<catalog>.<namespace>.<table>`.",
    "publish.<name>.mode": "`changes`: a feed with one commit of inserts, updates and deletes per checkpoint. `table`: "
    "the state itself.",
    "publish.<name>.format": "The format of the table: plain Parquet files, or Delta or Iceberg, each of which "
    "needs the extra of that name.",
    "publish.<name>.state": "The state that is published. It may be left out if there is only one.",
    "publish.<name>.output": "The output whose rows are published, in place of a state. It needs `mode: changes`.",
    "publish.<name>.columns": "The columns of the state's flat table, or of the output, to publish: a list, or a "
    "mapping from the published name to the column. Columns that identify a row are always published. Default: "
    "all, and of an aggregate its result only.",
    "publish.<name>.retain": "For mode `table` in format `parquet`: the number of commits that stay readable.",
    "alerts": "Notifications when a run fails or is late: [Airflow](../airflow.md).",
    "alerts.notify": "Airflow notifiers: `notifier`, a class by its dotted name, and its `arguments`. Without any, "
    "messages go to the log.",
    "alerts.deadline": "Send an alert if a run has not finished this long after it was queued, such as `6h`.",
    "retries": "Retries of a failed task by Airflow.",
    "retries.count": "The number of retries.",
    "retries.delay_s": "The delay before each retry, in seconds.",
    "allow_non_restored_state": "Whether a restore may leave out stored states that the file no longer has.",
}
