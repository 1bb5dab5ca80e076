"""``statelib export --all`` lists the states that cannot be written as text, and exports all others."""

import json
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from statelib.errors import UnsupportedError
from statelib.savepoints.lines import TYPED, LineFormat, export_all_lines
from statelib.savepoints.opened import open_checkpoint
from tests.integration.foreign import savepoint, write_undividable
from tests.integration.shop_cli import call

Lines = Callable[..., Iterator[str]]


@pytest.fixture(params=[False, True])
def undividable(tmp_path: Path, request: pytest.FixtureRequest) -> Path:
    """Return a snapshot with a value of Kryo's, or with one of an unknown subclass."""
    write_undividable(tmp_path / "savepoint", of_subclass=request.param)
    return tmp_path / "savepoint"


def states_of(lines: list[str]) -> set[str]:
    return {json.loads(line)["state"] for line in lines}


def test_the_states_before_a_value_without_an_end_are_exported(undividable: Path) -> None:
    result = call(None, "export", undividable, "--all")
    lines = [json.loads(line) for line in result.stdout.splitlines()]
    assert [(line["state"], line["value"]["v"]) for line in lines] == [("before", 0), ("before", 0)]
    assert result.exit_code == 1


def test_each_state_from_a_value_without_an_end_on_is_listed_once(undividable: Path, tmp_path: Path) -> None:
    """The heap's stream has no lengths, so nobody can tell where the state behind the value begins."""
    result = call(None, "export", undividable, "--all", "-o", tmp_path / "lines", "--json")
    listed = json.loads(result.stdout)["not_exported"]
    assert [text.partition(" of operator ")[0] for text in listed] == ["state 'uuid'", "state 'after'"]


@pytest.mark.parametrize(
    ("fixture", "state"),
    [
        ("kinds-hashmap-canonical-p1", "list"),
        ("kinds-hashmap-native-p2", "list"),
        ("keys-string-rocksdb-native", "count"),
        ("opstate-canonical-p2", "union"),
    ],
)
def test_a_state_without_text_does_not_end_the_export_of_others(fixture: str, state: str) -> None:
    opened, listed = open_checkpoint(str(savepoint(f"1.20.5/{fixture}"))), list[str]()
    form = LineFormat(partial(without_text, state, TYPED.entries), partial(without_text, state, TYPED.operator))
    lines = list(export_all_lines(opened, None, form=form, skip=listed.append))
    assert [text.partition(" of operator ")[0] for text in listed] == [f"state {state!r}"]
    assert states_of(lines) == states_of(list(export_all_lines(opened, None))) - {state}


def test_the_operator_states_of_a_header_that_cannot_be_read_are_listed(tmp_path: Path) -> None:
    """Their names are in the handles, too."""
    data = (savepoint("1.20.5/opstate-canonical-p2") / "_metadata").read_bytes()
    assert b".TupleSerializerSnapshot" in data
    (tmp_path / "_metadata").write_bytes(data.replace(b".TupleSerializerSnapshot", b".TupleSerializerSnapshoX"))
    result = call(None, "export", tmp_path, "--all")
    assert result.exit_code == 1
    assert "not exported: states 'split', 'splitPojo', 'union' of operator 21991e" in result.stderr
    assert states_of(result.stdout.splitlines()) == {"SourceReaderState", "rules", "rules2"}


def without_text(state: str, lines_of: Lines, *arguments: Any) -> Iterator[str]:
    """Return the lines of ``lines_of``; raise an error for the state of that name."""
    if any(getattr(argument, "name", "") == state for argument in arguments):
        raise UnsupportedError("no text", kind="unknown-subclass")
    return lines_of(*arguments)
