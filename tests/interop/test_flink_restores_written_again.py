"""Savepoints of real jobs, decoded into columns and written anew, are restored by a real Flink with their true
contents."""

import json
from pathlib import Path

import pytest

from tests.interop.flink_kit import Case, Flink, NoFlink, flink
from tests.interop.real_fixtures import canonical, opened, to_see, truth, written_again
from tests.interop.seen_lines import comparable
from tests.support.extent import large

CORE = [
    "kinds-hashmap-canonical-p4-files", "keys-pojo-hashmap-canonical", "maxpar32768-rocksdb-canonical",
    "values-hashmap-canonical", "sql-join-hashmap-canonical", "sql-groupby2-hashmap-canonical",
]  # fmt: skip
BACKENDS = ("hashmap", "rocksdb")


def without_ttl(line: str) -> str:
    """Return the value without the time of its last access, because the recorded truth has values that expire
    without it."""
    entry = json.loads(line)
    if entry.get("value", {}).get("type") == "ttl":
        entry["value"] = entry["value"]["v"]
    return json.dumps(entry)


def check(flink: Flink, fixtures: list[str], tmp_path: Path, parallelisms: tuple[int, ...]) -> None:
    cases, expected = [], []
    for number, fixture in enumerate(fixtures):
        directory, _ = written_again(fixture, tmp_path, compressed=bool(number % 2))
        for backend in BACKENDS:
            for parallelism in parallelisms:
                if parallelism <= max(opened(fixture).operators, key=lambda o: o.max_parallelism).max_parallelism:
                    cases.append(Case(directory, to_see(fixture), backend, parallelism, allow_non_restored_state=True))
                    expected.append(fixture)
    wrong = []
    for case, fixture, restored in zip(cases, expected, flink.restore(cases), strict=True):
        seen = comparable(without_ttl(line) for line in restored.lines)
        if restored.error or seen != comparable(truth(fixture)):
            wrong.append((fixture, case.backend, case.parallelism, restored.error[:300], len(seen)))
    assert wrong == []


def test_a_selection_of_savepoints_is_restored_by_flink_1(tmp_path: Path, flink_1: Flink) -> None:
    check(flink_1, [f"1.20.5/{name}" for name in CORE], tmp_path, (2,))


@large("make test has a selection of the set")
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("version", ["1.20.5", "2.3.0"])
def test_all_savepoints_are_restored_by_flink(tmp_path: Path, version: str) -> None:
    """This includes savepoints of Flink 1.20 in Flink 2, except values that Kryo wrote in one and reads wrongly in
    the other."""
    fixtures = canonical("1.20.5") + (canonical("2.3.0") if version == "2.3.0" else [])
    kryo = ("kryo", "values", "opstate") if version == "2.3.0" else ()
    wanted = [f for f in fixtures if not (f.startswith("1.") and any(word in f for word in kryo))]
    try:
        check(flink(version), wanted, tmp_path, (1, 2, 4))
    except NoFlink as reason:
        pytest.skip(str(reason))
