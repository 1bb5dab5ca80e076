"""The treatment of every snapshot below a directory as a user treats it: ``python -m tools.flink_corpus DIRECTORY``.

Each snapshot is verified, inspected, exported state by state, and rewritten. The exit status is 1 if a snapshot is
called damaged, if an error has no kind, if counts differ, or if a rewritten savepoint holds something else. The tool is
made for the snapshots that Flink keeps in its repository for its own tests: docs/flink-compatibility.md has the result.
"""

import json
import re
import sys
from collections import Counter
from collections.abc import Collection, Iterable, Iterator
from concurrent.futures import ProcessPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from statelib.cli.presenters.snapshot_document import describe
from statelib.errors import CorruptStateError, StatelibError
from statelib.model.handles import ChangelogStateBackendHandleImpl, materialized_parts
from statelib.savepoints.lines import export_lines
from statelib.savepoints.opened import Checkpoint, open_checkpoint
from statelib.savepoints.operator_content import export_operator_lines, left_out
from statelib.savepoints.verification.snapshots import verify
from statelib.savepoints.verification.stored_content import read_content
from statelib.savepoints.writing.new_savepoint import NewSavepoint
from statelib.savepoints.writing.rewritten_savepoint import OperatorChange, rewrite

_MAGIC = bytes.fromhex("4960672d")
_VERSION = re.compile(r"flink-?(\d+\.\d+)")
_FORMS = {
    "KeyGroupsSavepointStateHandle": "canonical",
    "KeyGroupsStateHandle": "heap",
    "IncrementalRemoteKeyedStateHandle": "rocksdb",
}


@dataclass
class Outcome:
    """The result for one snapshot.

    ``version``: the release of Flink in the path, or the version of the metadata. ``form``: the kinds of its keyed
    state. ``entries``: the number of exported entries and elements; ``opaque``: the number of states some of whose
    values are exported as bytes. ``left_out``: messages about state that ``inspect`` only names. ``refusals``: the kind
    and message of each state that is not read. ``faults``: one message per result that must not occur."""

    path: str
    version: str = ""
    form: str = ""
    entries: int = 0
    opaque: int = 0
    left_out: tuple[str, ...] = ()
    refusals: list[tuple[str, str]] = field(default_factory=list)
    faults: list[str] = field(default_factory=list)

    @property
    def result(self) -> str:
        if self.faults:
            return "fault"
        if self.refusals:
            kinds = ", ".join(sorted({kind for kind, _ in self.refusals}))
            return f"{'in part' if self.entries else 'refused'}: {kinds}"
        return "whole, some values as bytes" if self.opaque else "whole"

    @contextmanager
    def step(self, name: str, *expected: str) -> Iterator[None]:
        """Record the error of the block. An error of an ``expected`` kind is ignored; damage, and errors without a
        kind, are faults."""
        try:
            yield
        except CorruptStateError as error:
            self.faults.append(f"{name}: {error.kind}: {error.message}")
        except StatelibError as error:
            if error.kind not in expected:
                self.refusals.append((error.kind, error.message))
        except Exception as error:  # noqa: BLE001
            self.faults.append(f"{name}: {type(error).__name__}: {error}")


def snapshots_in(directory: Path) -> Iterator[Path]:
    """Yield the directories that contain ``_metadata``, and the savepoints that are a single file."""
    for path in sorted(directory.rglob("*")):
        if path.name == "_metadata":
            yield path.parent
        elif path.is_file() and not (path.parent / "_metadata").exists() and path.read_bytes()[:4] == _MAGIC:
            yield path


def outcome_of(path: Path) -> Outcome:
    """Return the result for the snapshot at ``path``."""
    versions = _VERSION.findall(str(path))
    outcome = Outcome(str(path), versions[-1] if versions else "")
    with outcome.step("open"):
        opened = open_checkpoint(str(path))
        outcome.version = outcome.version or f"metadata {opened.metadata.version}"
        outcome.form, outcome.left_out = _form(opened), tuple(left_out(opened))
        for read_data in (False, True):
            with outcome.step("verify"):
                outcome.faults += [f"verify: {text}" for text in verify(opened, read_data=read_data).problems]
        with outcome.step("inspect"):
            _export(outcome, opened)
        with outcome.step("rewrite", "not-canonical", "channel-state"):
            _rewrite(outcome, opened)
    return outcome


def _form(opened: Checkpoint) -> str:
    """Return the kinds of keyed state in the snapshot."""
    forms = set()
    for part in opened.each_operator():
        for handle in part.handles():
            forms |= {_FORMS[type(stored).__name__] for stored in materialized_parts(handle)}
            forms |= {"changelog"} if isinstance(handle, ChangelogStateBackendHandleImpl) else set()
    return " + ".join(sorted(forms)) or "no keyed state"


def _export(outcome: Outcome, opened: Checkpoint) -> None:
    """Export each state of each operator, and compare the number of lines with the number that ``inspect`` shows."""
    parts = {part.selected: part for part in opened.each_operator()}
    for described in describe(opened, counted=True)["operators"]:
        selected = replace(opened, selected=bytes.fromhex(described["operator_id"]))
        part = parts.get(selected.selected)
        if "unreadable" in described and part is not None:
            with outcome.step("inspect"):
                read_content(part)
        for state in described["states"]:
            with outcome.step("export"):
                _count(outcome, state, state["entries"], export_lines(selected, state["name"]))
            with outcome.step("columns"):
                rows = len(selected.to_arrow(state["name"]))
                if state["entries"] not in (None, rows):
                    outcome.faults.append(f"columns of {state['name']}: {rows} rows, inspect shows {state['entries']}")
        for state in described["operator_states"]:
            with outcome.step("export"):
                _count(outcome, state, state["elements"], export_operator_lines(selected, state["name"]))


def _count(outcome: Outcome, state: dict[str, Any], expected: int | None, lines: Iterable[str]) -> None:
    """Count the exported lines. A list is one entry with a line per element."""
    count = sum(not json.loads(line).get("idx") for line in lines)
    outcome.entries += count
    outcome.opaque += bool(state["opaque"])
    if expected is not None and count != expected:
        outcome.faults.append(f"export of {state['name']}: {count} entries, inspect shows {expected}")


def _rewrite(outcome: Outcome, opened: Checkpoint) -> None:
    """Write the savepoint again, copied and entry by entry, and compare the contents. Operators whose entries cannot be
    read are only copied."""
    readable = [part.selected for part in opened.each_operator() if _is_readable(part)]
    changed = {selected.hex(): OperatorChange() for selected in readable if selected}
    for changes in ({}, changed):
        with TemporaryDirectory() as target:
            written = open_checkpoint(rewrite(opened, NewSavepoint(target, "again"), changes=changes))
            if _contents(written, readable) != _contents(opened, readable):
                outcome.faults.append("rewrite: the new savepoint holds something else")
            if not changes and _bytes(written, keyed=True) != _bytes(opened, keyed=True):
                outcome.faults.append("rewrite: the copied streams differ")


def _is_readable(part: Checkpoint) -> bool:
    try:
        return bool(part.keyed_handles) and read_content(part) is not None
    except StatelibError:
        return False


def _contents(opened: Checkpoint, readable: Collection[bytes | None]) -> list[Any]:
    """Return the schema, counts and digests of each operator in ``readable``, and the bytes of all other state."""
    parts = [part for part in opened.each_operator() if part.selected in readable]
    keyed = [
        (
            part.selected,
            part.schema(),
            [(s.entries.tolist(), s.digests.tolist()) for s in read_content(part).statistics],
        )
        for part in parts
    ]
    return [*keyed, *_bytes(opened, keyed=False)]


def _bytes(opened: Checkpoint, *, keyed: bool) -> list[bytes]:
    reader = opened.reader()
    return [bytes(reader.read(stream)) for stream in opened.state_streams(keyed=keyed)]


def main(directory: str) -> int:
    """Print the number of snapshots per version, form and result, then refusals and faults. Return the exit status."""
    with ProcessPoolExecutor(2) as pool:
        outcomes = list(pool.map(outcome_of, snapshots_in(Path(directory).absolute()), chunksize=4))
    results = Counter(outcome.result for outcome in outcomes)
    lines = [
        *_counted("snapshots", Counter(f"{o.version:<12} {o.form:<24} {o.result}" for o in outcomes)),
        *_counted("refusals", Counter(f"{k}: {_pattern(text)}" for o in outcomes for k, text in set(o.refusals))),
        *_counted("left out", Counter(_pattern(text) for o in outcomes for text in set(o.left_out))),
        *(f"FAULT {o.path}\n      {fault}" for o in outcomes for fault in o.faults),
        *_counted(f"{len(outcomes)} snapshots, {sum(o.entries for o in outcomes)} entries", results),
    ]
    sys.stdout.write("\n".join(lines) + "\n")
    return 1 if results["fault"] or not outcomes else 0


def _counted(title: str, counts: Counter[str]) -> list[str]:
    return [title, *(f"{count:>7}  {text}" for text, count in sorted(counts.items()))]


def _pattern(message: str) -> str:
    """Return a message without paths and operators, so that equal messages are counted together."""
    return re.sub(r"[0-9a-f]{32}", "<operator>", re.sub(r"^\S*/\S*: ", "", message))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
