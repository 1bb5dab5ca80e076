"""The fixtures of real Flink jobs: the state of each job, and savepoints of them that statelib wrote anew."""

import json
import re
from pathlib import Path
from typing import Any

from statelib.errors import UnsupportedError
from statelib.model.key_hash import FieldsHash
from statelib.savepoints.opened import Checkpoint, open_checkpoint
from statelib.savepoints.writing.new_savepoint import NewSavepoint
from statelib.savepoints.writing.rewritten_savepoint import OperatorChange, rewrite
from tests.interop.flink_kit import OperatorToSee, StateToSee, TimersToSee

ROOT = Path(__file__).parents[1] / "golden" / "flink"
KEY_HASH = FieldsHash(("id", "name"), start=0)
"""The hash rule of the only class that the jobs use for keys: ``31 * id + name.hashCode()``."""
_WORDS = {"Integer": "int", "BigInteger": "bigint", "BigDecimal": "bigdecimal", "Void": "void"} | {
    f"Local{name}": word for name, word in (("Date", "date"), ("Time", "time"), ("DateTime", "datetime"))
}
_JOB = "probe.Tv$"
_PERSON = (
    "; name: string, age: int, score: long, color: enum<probe.Tv$Color>, tags: list<string>, "
    "home: pojo<probe.Tv$Address>, xs: array<double>"
)
"""The job named the types of this class's fields, others it left to Flink."""


def canonical(version: str) -> list[str]:
    """Return the canonical fixtures, without those whose accumulators' types only Flink's planner can make."""
    paths = [path for path in (ROOT / version).glob("*canonical*") if _directory(path)]
    return sorted(f"{version}/{path.name}" for path in paths if "sql-aggregates" not in path.name)


def _directory(fixture: Path) -> Path | None:
    return next((path.parent for path in fixture.glob("savepoint-*/_metadata")), None)


def opened(fixture: str) -> Checkpoint:
    return open_checkpoint(str(_directory(ROOT / fixture)))


def about(fixture: str) -> dict[str, Any]:
    return dict(json.loads((ROOT / fixture / "about.json").read_text()))


def truth(fixture: str) -> list[str]:
    return (ROOT / fixture / about(fixture)["snapshots"][0]["truth"]).read_text().splitlines()


def written_again(fixture: str, target: Path, *, compressed: bool) -> tuple[Path, set[str]]:
    """Read each state into columns and write it anew. Return the names of states that no column can hold: their
    entries are copied as they are, within streams that are written anew."""
    source, changes, remaining = opened(fixture), {}, set()
    for part in source.each_operator():
        put = {}
        for descriptor in part.schema().states:
            try:
                put[descriptor] = part.to_arrow(descriptor.name)
            except UnsupportedError:
                remaining.add(descriptor.name)
        rule = KEY_HASH if "pojo" in fixture else None
        changes[part.keyed_operator().operator_id.hex()] = OperatorChange(put=put, key_hash=rule)
    place = NewSavepoint(str(target), fixture.replace("/", "-"), compressed=compressed)
    return Path(rewrite(source, place, changes=changes).removeprefix("file://")), remaining


def to_see(fixture: str) -> tuple[OperatorToSee, ...]:
    """Return the operators that the job recorded, which the checker declares."""
    return tuple(
        OperatorToSee(
            operator["uid"],
            type_text(operator["keyType"]) if operator.get("keyType") else None,
            tuple(_state(state) for state in operator["states"]),
            tuple(TimersToSee(t["service"], _namespace(t["ns"])) for t in operator["timers"]),
        )
        for operator in about(fixture)["operators"]
    )


def _state(state: dict[str, Any]) -> StateToSee:
    text, user_key = type_text(state["type"]), state["ukType"]
    if state["ttlMs"]:
        text = f"ttl<{text}>"
    return StateToSee(
        state["name"], state["kind"], text, type_text(user_key) if user_key else None, _namespace(state["ns"])
    )


def _namespace(name: str | None) -> str | None:
    return name.lower() if name else None


def type_text(job: str) -> str:
    """Return ``Tuple2<String,Long>`` as ``tuple<string, long>``."""
    if job == "byte[]":
        return "bytes"
    if job.endswith("[]"):
        element = job[:-2]
        return f"array<{type_text(element)}>" if element[0].islower() or element == "String" else _objects(element)
    if ":" in job and "<" not in job.partition(":")[0]:
        word, _, name = job.partition(":")
        return {
            "Pojo": f"pojo<{_JOB}{name}{_PERSON if name == 'Person' else ''}>",
            "Enum": f"enum<{_JOB}{name}>",
            "Kryo": f"kryo<{name}>",
        }[word]
    match = re.fullmatch(r"([A-Za-z]+)\d*<(.*)>", job)
    if not match:
        return _WORDS.get(job, job.lower())
    word, parts = match[1].lower(), _parts(match[2])
    if word == "rowdata":
        return f"rowdata<{', '.join(f'f{i}: {part}' for i, part in enumerate(parts))}>"
    if word == "row":
        named = [part.partition(":") if ":" in part else (f"f{i}", ":", part) for i, part in enumerate(parts)]
        return f"row<{', '.join(f'{name}: {type_text(field)}' for name, _, field in named)}>"
    return f"{word}<{', '.join(map(type_text, parts))}>"


def _objects(element: str) -> str:
    return f"objects<{type_text(element if element == 'Long' else f'Pojo:{element}')}>"


def _parts(text: str) -> list[str]:
    """Split at the commas outside of brackets."""
    parts, depth = [""], 0
    for char in text:
        depth += {"<": 1, "(": 1, ">": -1, ")": -1}.get(char, 0)
        if char == "," and not depth:
            parts.append("")
        else:
            parts[-1] += char
    return parts
