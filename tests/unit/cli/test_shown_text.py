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

import statelib.cli
from statelib.cli.ending import fail
from statelib.cli.presenters import console
from statelib.cli.presenters.blocks import Drawing, Fields, Line, Note, TableColumn, TextTable, print_json, show
from statelib.cli.presenters.console import SafeConsole, working
from statelib.errors import CorruptStateError, InvalidRequestError
from statelib.visible import is_hidden, visible
from tests.support.hostile_strings import ANY, TERMINAL, hostile_text

OWN = "\n"


@pytest.fixture
def screen(monkeypatch: pytest.MonkeyPatch) -> StringIO:
    """Return what a pipe receives from both output streams."""
    return _screen(monkeypatch)


def _screen(monkeypatch: pytest.MonkeyPatch) -> StringIO:
    seen = StringIO()
    for name in ("out", "err"):
        monkeypatch.setattr(console, name, SafeConsole(file=seen, highlight=False, emoji=False, width=200))
    return seen


def _line(text: str) -> None:
    show([Line(text)])


def _note(text: str) -> None:
    show([Note(text)])


def _fields(text: str) -> None:
    show([Fields([(text, text)])])


def _table(text: str) -> None:
    show([TextTable(text, [TableColumn(text), TableColumn("b", wraps=True)], [[text, text]])])


def _error(text: str) -> None:
    with pytest.raises(Exit):
        fail(InvalidRequestError(text, kind="x", hint=text), as_json=False)


def _damage(text: str) -> None:
    with pytest.raises(Exit):
        fail(CorruptStateError(text, kind="x"), as_json=False)


def _tree(text: str) -> None:
    tree = Tree(Text(text))
    tree.add(Text(text))
    show([Drawing(tree)])


def _working(text: str) -> None:
    with working(text):
        pass


WAYS = [_line, _note, _fields, _table, _error, _damage, _tree, _working]


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("text", ANY)
def test_no_hidden_character_reaches_the_terminal(way: Callable[[str], None], text: str, screen: StringIO) -> None:
    way(text)
    assert [c for c in screen.getvalue() if c != OWN and is_hidden(c)] == []


@pytest.mark.parametrize("way", [_line, _note])
@pytest.mark.parametrize("text", ANY)
def test_a_printed_line_is_one_line_with_the_visible_text(
    way: Callable[[str], None], text: str, screen: StringIO
) -> None:
    way(text)
    assert screen.getvalue() == visible(text) + "\n"


@pytest.mark.parametrize("text", TERMINAL)
def test_a_table_cell_is_one_line(text: str, screen: StringIO) -> None:
    show([TextTable("title", [TableColumn("a"), TableColumn("b")], [[text, "end"]])])
    (row,) = [shown for shown in screen.getvalue().splitlines() if shown.endswith("end")]
    assert row.startswith(visible(text))


@given(st.dictionaries(hostile_text(), hostile_text(), max_size=4))
def test_json_output_is_exact_and_contains_no_hidden_character(values: dict[str, str]) -> None:
    with pytest.MonkeyPatch.context() as patch:
        seen = StringIO()
        patch.setattr("sys.stdout", seen)
        print_json(values)
    assert json.loads(seen.getvalue()) == values
    assert [c for c in seen.getvalue() if c != OWN and is_hidden(c)] == []


def test_text_cannot_set_a_style_of_the_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    seen = StringIO()
    console = SafeConsole(file=seen, force_terminal=True, color_system="standard", highlight=False, emoji=False)
    console.print("[bold]\x1b[31m[/]")
    assert seen.getvalue() == "\x1b[1m\\x1b[31m\x1b[0m\n"


PRINTING = ("print", "typer.echo", "typer.secho", "Console", "rich.print", "sys.stdout.write", "sys.stderr.write")


def test_commands_print_only_through_the_presenter() -> None:
    """The blocks are printed in one file; ``export`` writes its lines itself."""
    rooms = Path(statelib.cli.__file__).parent
    results = []
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
                "in_utf8",
            ):
                results.append((file.name, called))
    assert sorted(results) == [("blocks.py", "in_utf8"), ("inspecting.py", "in_utf8")]
