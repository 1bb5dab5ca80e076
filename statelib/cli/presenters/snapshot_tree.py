"""A snapshot as a tree for people: its operators, their states, subtasks and files, and the spread of the entries."""

from collections.abc import Iterator, Sequence
from typing import Any

from rich.text import Text
from rich.tree import Tree

from statelib.cli.presenters.blocks import Block, Drawing, Line
from statelib.cli.presenters.values import count, size
from statelib.model.amounts import amount

Json = dict[str, Any]
_BARS = " ▁▂▃▄▅▆▇█"
_BAR, _BUCKETS = 20, 32
_SKEWED = 2.0
"""The title names the fullest subtask if it has at least this many times the mean."""
_STREAMS = 8
"""The number of streams that are listed per subtask. RocksDB may have hundreds."""
DRAINED = "drained: its event-time timers have fired and its windows are closed"
"""The line of a savepoint that stopped its pipeline with ``--drain``."""


def snapshot_view(description: Json) -> Iterator[Block]:
    """Yield the blocks of a snapshot that :func:`~statelib.cli.presenters.snapshot_document.describe` described."""
    yield Line(description["directory"])
    tree = Tree(
        f"checkpoint {description['checkpoint_id']}, written by {description['written_by']}, "
        f"_metadata version {description['metadata_version']}"
    )
    for operator in description["operators"]:
        _add_operator(tree, operator)
    _add_side_data(tree, description["side_data"])
    _add_files(tree, description)
    for text in _remarks(description):
        _add(tree, text)
    if description["left_out"]:
        branch = _add(tree, "no state that can be read", "yellow")
        for text in description["left_out"]:
            _add(branch, text)
    yield Drawing(tree)


def _remarks(description: Json) -> Iterator[str]:
    """Yield the sentences about the run that took the snapshot."""
    for state, events in description["late_events"].items():
        yield _too_late(state, events)
    for state, events in description["events_without_user_key"].items():
        yield _without_user_key(state, events)
    if description["drained"]:
        yield DRAINED
    if description["seed"]:
        yield f"seeded from {description['seed']}"
    if description["restored_from"]:
        yield f"its subtasks restored from: {', '.join(description['restored_from'])}"
    if description["deltas"]:
        yield _open_deltas(description["deltas"])


def _open_deltas(deltas: list[Json]) -> str:
    """Return the sentence about what is not merged with the state yet, and hence not counted."""
    checkpoints = len({delta["checkpoint_id"] for delta in deltas})
    values = amount(sum(delta["partial_values"] for delta in deltas), "partial value")
    return f"open deltas of {amount(checkpoints, 'checkpoint')}: {values}, which readers merge with the state"


def _too_late(state: str, events: int) -> str:
    """Return the sentence that says how many events of an interval a windowed state did not count."""
    were = "was too late for its window" if events == 1 else "were too late for their windows"
    return f"state {state}: {amount(events, 'event')} of this interval {were}"


def _without_user_key(state: str, events: int) -> str:
    """Return the sentence that says how many events of an interval a map did not take."""
    have = "has no user key and is not in this map" if events == 1 else "have no user key and are not in this map"
    return f"state {state}: {amount(events, 'event')} of this interval {have}"


def _add(tree: Tree, text: str, style: str = "") -> Tree:
    return tree.add(Text(text, style))


def _add_operator(tree: Tree, operator: Json) -> None:
    """Add an operator to the tree: its keyed states, then its operator states, then its subtasks."""
    name = operator["uid"] or operator["operator_id"]
    title = f"Operator {name}: parallelism {operator['parallelism']} of {operator['max_parallelism']}"
    keyed = f", key {operator['key_type'] or 'unknown'}" if operator["subtasks"] else ", no keyed state"
    branch = _add(tree, title + keyed, "bold")
    if operator["uid"]:
        _add(branch, f"id {operator['operator_id']}")
    if operator["keys"] is not None:
        _add(branch, amount(operator["keys"], "key"))
    if operator["finished"] or operator["finished_subtasks"]:
        finished = "all" if operator["finished"] else count(operator["finished_subtasks"])
        _add(branch, f"{finished} of its subtasks had finished")
    if "unreadable" in operator:
        what = "entries" if operator["states"] else "states"
        _add(branch, f"{what} cannot be read: {operator['unreadable']}", "yellow")
    for state in operator["states"]:
        _add_state(branch, state)
    for state in operator["operator_states"]:
        _add_operator_state(branch, state)
    if operator["subtasks"]:
        _add_subtasks(branch, operator)


def _add_state(branch: Tree, state: Json) -> None:
    entries = "" if state["entries"] is None else f", {amount(state['entries'], 'entry')}"
    node = _add(branch, f"{state['name']}: {state['kind']}{entries}")
    for label, key in (("namespace", "namespace_type"), ("user key", "user_key_type")):
        if state[key]:
            _add(node, f"{label} {state[key]}")
    if state["kind"] != "timers":
        _add(node, f"value {state['value_type']}")
    if state["ttl"]:
        _add(node, "expires: each value has the time of its last access")
    for serializer in state["opaque"]:
        _add(node, f"opaque: only a Flink job with {serializer} reads it; exported as its bytes", "yellow")


def _add_operator_state(branch: Tree, state: Json) -> None:
    elements = "" if state["elements"] is None else f", {amount(state['elements'], 'element')}"
    node = _add(branch, f"{state['name']}: operator state, {state['mode']}{elements}")
    if state["key_type"]:
        _add(node, f"key {state['key_type']}")
    _add(node, f"value {state['value_type'] or 'unknown'}")
    for serializer in state["opaque"]:
        _add(node, f"opaque: only a Flink job with {serializer} reads it; exported as its bytes", "yellow")
    if "unreadable" in state:
        _add(node, f"cannot be read: {state['unreadable']}", "yellow")


def _add_subtasks(branch: Tree, operator: Json) -> None:
    subtasks = operator["subtasks"]
    counted = operator["entries_by_key_group"] is not None
    weights = [s["entries"] if counted else s["size_bytes"] for s in subtasks]
    mean = sum(weights) / operator["parallelism"]
    title = f"subtasks, by {'entries' if counted else 'bytes'}"
    if mean and max(weights) >= _SKEWED * mean:
        title += f": the fullest has {max(weights) / mean:.1f} times the mean"
    tree = _add(branch, title)
    digits = len(str(max(s["subtask"] for s in subtasks)))
    spread = max(len(s["key_groups"]) for s in subtasks)
    for subtask, weight in zip(subtasks, weights, strict=True):
        entries = f"{amount(subtask['entries'], 'entry')}, " if counted else ""
        node = _add(
            tree,
            f"{subtask['subtask']:>{digits}} {subtask['key_groups']:<{spread}} {bar(weight, max(weights))} "
            f"{entries}{size(subtask['size_bytes'])}",
        )
        below = ", ".join(subtask["materialized"])
        _add(node, subtask["handle"] + (f" over {below}" if [subtask["handle"]] != subtask["materialized"] else ""))
        _add_streams(node, subtask["streams"])
    if counted:
        groups = operator["entries_by_key_group"]
        each = -(-len(groups) // _BUCKETS)
        title = f"key groups 0-{len(groups) - 1}, {each} per bar, at most {amount(max(groups), 'entry')} in one"
        _add(_add(branch, title), f"|{histogram(groups)}|")


def _add_streams(tree: Tree, streams: Sequence[Json]) -> None:
    for stream in streams[:_STREAMS]:
        place = "inline in _metadata" if stream["path"] is None else stream["path"]
        start = "" if stream["start"] is None else f" from {stream['start']:,}"
        _add(tree, f"{stream['role']}, {size(stream['size_bytes'])}: {place}{start}")
    if len(streams) > _STREAMS:
        rest = streams[_STREAMS:]
        _add(tree, f"{amount(len(rest), 'more stream')}, {size(sum(s['size_bytes'] for s in rest))}")


def _add_files(tree: Tree, description: Json) -> None:
    if not description["files"]:
        return
    total = size(sum(file["size_bytes"] for file in description["files"]))
    branch = _add(tree, f"files: {len(description['files'])}, {total}", "bold")
    for file in description["files"]:
        node = _add(
            branch, f"{file['path']}: {size(file['size_bytes'])}, crc32c {file['crc32c']}, {file['key_groups']}"
        )
        for segment in file["segments"]:
            end = segment["start"] + segment["size_bytes"]
            _add(node, f"segment {segment['start']:,} to {end:,}, {size(segment['size_bytes'])}")
    if description["uploaded_bytes"] is not None:
        _add(branch, f"written for this checkpoint: {size(description['uploaded_bytes'])}, the rest was there already")


def _add_side_data(tree: Tree, parts: list[Json]) -> None:
    branch = _add(tree, "side data", "bold") if parts else tree
    for part in parts:
        place = part["path"] or "in _metadata"
        _add(branch, f"{part['name']}: key groups {part['key_groups']}, {size(part['size_bytes'])}, {place}")


def bar(amount: int, most: int) -> str:
    """Return a bar for ``amount``; ``most`` fills it. Any amount above zero has at least one filled cell."""
    filled = 0 if not amount else max(1, round(_BAR * amount / most))
    return "█" * filled + "·" * (_BAR - filled)


def histogram(groups: Sequence[int]) -> str:
    """Return at most 32 columns for the key groups, each as high as its share of the fullest one."""
    each = -(-len(groups) // _BUCKETS)
    sums = [sum(groups[at : at + each]) for at in range(0, len(groups), each)]
    most = max(sums) or 1
    return "".join(_BARS[-(-s * (len(_BARS) - 1) // most)] for s in sums)
