"""The differences that a correction would make, as a person reads them before the approval."""

from statelib.flows.mending.differences import MAX_CHARACTERS, MAX_STATES, Differences, StateDifferences
from statelib.visible import is_hidden
from tests.support.hostile_strings import ANY


def counts(added: int, removed: int, changed: int) -> dict[str, int]:
    return {"added": added, "removed": removed, "changed": changed}


def entry(key: str, change: str, before: str, after: str) -> dict[str, str]:
    return {"key_group": "7", "key": key, "user_key": '"i"', "change": change, "before": before, "after": after}


def test_counts_and_values_before_and_after_are_listed() -> None:
    sample = (entry('"a"', "changed", "1", "2"), entry('"b"', "added", "-", "3"), entry('"c"', "removed", "4", "-"))
    states = (StateDifferences("total", counts(1, 1, 1201), sample), StateDifferences("most", counts(0, 0, 0), ()))
    assert Differences(1, states).describe().splitlines() == [
        "**Differences, by 1 event**",
        "",
        "- ` total `: 1 added, 1 removed, 1,201 changed",
        '    - changed, key ` "a" `, user key ` "i" `: ` 1 ` → ` 2 `',
        '    - added, key ` "b" `, user key ` "i" `: ` 3 `',
        '    - removed, key ` "c" `, user key ` "i" `: ` 4 `',
        "    - and 1,200 more entries",
        "- ` most `: 0 added, 0 removed, 0 changed",
    ]


def test_hostile_and_long_values_are_code_of_limited_length() -> None:
    sample = tuple(entry(text, "changed", text * 1000, text) for text in ANY)
    states = tuple(StateDifferences(f"s{n}", counts(0, 0, len(ANY)), sample) for n in range(1000))
    lines = Differences(5, states).describe().splitlines()
    assert len(lines) == 2 + len(states) + MAX_STATES * len(ANY), "every entry has one line"
    assert max(map(len, lines)) < 6 * MAX_CHARACTERS
    assert not any(is_hidden(character) for line in lines for character in line)
