"""Whatever text the command line prints, a terminal gets no command of it, and nothing hides; JSON stays exact."""

import ast
import json
from collections.abc import Callable
from io import StringIO
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.text import Text
from rich.tree import Tree
from typer import Exit

from statelib.cli import output
from statelib.cli.output import Column, SafeConsole, fail, line, note, print_json, table, working
from statelib.errors import CorruptStateError, InvalidRequestError
from statelib.visible import is_hidden, visible
from tests.support.hostile_strings import ANY, TERMINAL, hostile_text

OWN = "\n"


@pytest.fixture
def screen(monkeypatch: pytest.MonkeyPatch) -> StringIO:
    """Both streams, as a pipe sees them."""
    return _screen(monkeypatch)


def _screen(monkeypatch: pytest.MonkeyPatch) -> StringIO:
    seen = StringIO()
    for name in ("out", "err"):
        monkeypatch.setattr(output, name, SafeConsole(file=seen, highlight=False, emoji=False, width=200))
    return seen


def _table(text: str) -> None:
    table(text, [Column(text), Column("b", wraps=True)], [[text, text]])


def _error(text: str) -> None:
    with pytest.raises(Exit):
        fail(InvalidRequestError(text, kind="x", hint=text), as_json=False)


def _damage(text: str) -> None:
    with pytest.raises(Exit):
        fail(CorruptStateError(text, kind="x"), as_json=False)


def _tree(text: str) -> None:
    tree = Tree(Text(text))
    tree.add(Text(text))
    output.out.print(tree)


def _working(text: str) -> None:
    with working(text):
        pass


WAYS = [line, note, _table, _error, _damage, _tree, _working]


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("text", ANY)
def test_nothing_hidden_reaches_the_terminal(way: Callable[[str], None], text: str, screen: StringIO) -> None:
    way(text)
    assert [c for c in screen.getvalue() if c != OWN and is_hidden(c)] == []


@pytest.mark.parametrize("way", [line, note])
@pytest.mark.parametrize("text", ANY)
def test_a_line_is_one_line_with_the_text_as_it_is(way: Callable[[str], None], text: str, screen: StringIO) -> None:
    way(text)
    assert screen.getvalue() == visible(text) + "\n"


@pytest.mark.parametrize("text", TERMINAL)
def test_a_cell_is_one_line(text: str, screen: StringIO) -> None:
    table("title", [Column("a"), Column("b")], [[text, "end"]])
    (row,) = [shown for shown in screen.getvalue().splitlines() if shown.endswith("end")]
    assert row.startswith(visible(text))


@given(st.dictionaries(hostile_text(), hostile_text(), max_size=4))
def test_json_is_exact_and_hides_nothing(values: dict[str, str]) -> None:
    with pytest.MonkeyPatch.context() as patch:
        seen = StringIO()
        patch.setattr("sys.stdout", seen)
        print_json(values)
    assert json.loads(seen.getvalue()) == values
    assert [c for c in seen.getvalue() if c != OWN and is_hidden(c)] == []


def test_styles_are_no_text(monkeypatch: pytest.MonkeyPatch) -> None:
    seen = StringIO()
    console = SafeConsole(file=seen, force_terminal=True, color_system="standard", highlight=False, emoji=False)
    console.print("[bold]\x1b[31m[/]")
    assert seen.getvalue() == "\x1b[1m\\x1b[31m\x1b[0m\n"


PRINTING = ("print", "typer.echo", "typer.secho", "Console", "rich.print", "sys.stdout.write", "sys.stderr.write")


def test_commands_print_through_the_presenter_only() -> None:
    """``out`` and ``err`` are safe consoles; ``export`` writes its lines itself, and JSON goes through print_json."""
    rooms = Path(output.__file__).parent
    found = []
    for file in rooms.rglob("*.py"):
        for node in ast.walk(ast.parse(file.read_text())):
            called = ast.unparse(node.func) if isinstance(node, ast.Call) else ""
            if called in (
                "print",
                "typer.echo",
                "typer.secho",
                "Console",
                "rich.print",
                "sys.stdout.write",
                "sys.stderr.write",
            ):
                found.append((file.name, called))
    assert sorted(found) == [("output.py", "sys.stdout.write"), ("snapshots.py", "sys.stdout.write")]
