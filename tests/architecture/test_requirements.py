"""docs/spec/requirements.md answers every requirement, and its links lead to code, tests and decisions that exist."""

import ast
import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

from tests.architecture.repository import ROOT

PAGE = ROOT / "docs" / "spec" / "requirements.md"
ROWS = 175
CELLS = ("row", "requirement", "answer", "code", "test")

NAMED = re.compile(r"\[`([\w.]+)`\]\(([^)]+)\)")
"""A link to a file, with the name of a definition in it."""
DECISION = re.compile(r"\[decision (\d+)\]\(([^)]+)\)")


def rows(text: str) -> list[dict[str, str]]:
    """Return the rows of all tables of the page. A row with another number of cells has only some of the keys."""
    lines = [line for line in text.splitlines() if re.match(r"\| *R\d", line)]
    return [dict(zip(CELLS, (cell.strip() for cell in line[1:].split("|")), strict=False)) for line in lines]


@cache
def definitions(path: Path) -> frozenset[str]:
    """Return the qualified names of all functions, classes and constants that a module defines."""
    return frozenset(_defined(ast.parse(path.read_text()), ""))


def _defined(node: ast.AST, prefix: str) -> Iterator[str]:
    for child in ast.iter_child_nodes(node):
        if isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            yield prefix + child.name
            yield from _defined(child, f"{prefix}{child.name}.")
        elif isinstance(child, ast.Assign | ast.AnnAssign):
            targets = child.targets if isinstance(child, ast.Assign) else [child.target]
            yield from (prefix + target.id for target in targets if isinstance(target, ast.Name))


def decisions() -> dict[str, Path]:
    """Return the file of each decision by its number."""
    return {str(int(path.name[:4])): path for path in sorted((ROOT / "docs" / "decisions").glob("[0-9]*.md"))}


def test_decisions_are_numbered_and_in_the_index() -> None:
    paths = sorted((ROOT / "docs" / "decisions").glob("[0-9]*.md"))
    numbers = [int(path.name[:4]) for path in paths]
    assert numbers == sorted(set(numbers)), "each number once; numbers may be reserved and not used"
    index = (ROOT / "docs" / "decisions" / "README.md").read_text()
    for number, path in decisions().items():
        text = path.read_text()
        title = re.match(rf"# {number}\. (.+)\n", text)
        assert title
        assert re.search(r"^Status: (Accepted|Superseded by \[decision \d+\]\(.+\))$", text, re.MULTILINE)
        assert f"| {number} | [{title[1]}]({path.name}) |" in index


def problems(text: str) -> list[str]:
    """Return the problems of the page; an empty list if every row has an answer and each link leads somewhere."""
    answered = rows(text)
    problem_lines = [f"row {number} is not there once" for number in _miscounted(answered)]
    for row in answered:
        problem_lines += [f"{row['row']}: {problem}" for problem in _problems_of(row)]
    return problem_lines


def _miscounted(answered: list[dict[str, str]]) -> list[str]:
    numbers = [row["row"] for row in answered]
    expected = [f"R{number}" for number in range(1, ROWS + 1)]
    return sorted({n for n in [*numbers, *expected] if numbers.count(n) != 1 or n not in expected})


def _problems_of(row: dict[str, str]) -> Iterator[str]:
    if len(row) != len(CELLS) or not row["requirement"]:
        yield "a cell is missing"
        return
    yield from _unanswered(row)
    yield from _lost_names(row["code"], tests=False)
    yield from _lost_names(row["test"], tests=True)
    decision_files = decisions()
    for number, place in DECISION.findall(row["answer"]):
        if (PAGE.parent / place).resolve() != decision_files.get(number):
            yield f"there is no decision {number} in {place}"


def _unanswered(row: dict[str, str]) -> Iterator[str]:
    answer, code, tests = row["answer"], NAMED.findall(row["code"]), NAMED.findall(row["test"])
    if answer.startswith("Met"):
        if not code and not all("/architecture/" in place for _, place in tests):
            yield "is met, but no code is named"
        if not tests and "No test: " not in answer:
            yield "is met, but no test is named"
    elif answer.startswith("Different: "):
        if not DECISION.search(answer):
            yield "is different, but no decision is named"
    elif not re.match(r"Not met: \w", answer):
        yield "has no answer: expected Met, Different or Not met, and what is missing"


def _lost_names(cell: str, *, tests: bool) -> Iterator[str]:
    for name, place in NAMED.findall(cell):
        path = (PAGE.parent / place).resolve()
        if not path.is_file():
            yield f"there is no file {place}"
        elif name not in (_tests(path) if tests else definitions(path)):
            yield f"{name} is not defined in {place}"


def _tests(path: Path) -> set[str]:
    """Return the names of tests and of classes of tests. A test in a class is named without the class."""
    last = {name.rpartition(".")[2] for name in definitions(path)}
    return {name for name in last if name.startswith(("test_", "Test"))}


def test_every_row_is_answered_and_every_link_leads_somewhere() -> None:
    assert problems(PAGE.read_text()) == []


TEST = r"\[`test_one_strategy_takes_many_snapshots`\]\([^)]+\)"


def test_names_on_the_other_pages_are_defined() -> None:
    lost = {}
    for page in sorted(PAGE.parent.glob("*.md")):
        lost[page.name] = [
            f"{name} is not defined in {place}"
            for name, place in NAMED.findall(page.read_text())
            if not (page.parent / place).is_file() or name not in definitions((page.parent / place).resolve())
        ]
    lost.pop(PAGE.name)
    assert {page: names for page, names in lost.items() if names} == {}
    assert "protocol.md" in lost


BREAKS = {
    "a row is missing": (r"^\| R2 \|.*\n", "", "row R2 is not there once"),
    "a row is there twice": (r"^(\| R2 \|.*\n)", r"\1\1", "row R2 is not there once"),
    "a row too many": (r"^\| R175 \|(.*)\n", r"| R175 |\1\n| R176 |\1\n", "row R176 is not there once"),
    "no answer": (r"^(\| R2 \|[^|]*\|)[^|]*\|", r"\1 |", "R2: has no answer"),
    "another answer": (r"^(\| R2 \|[^|]*\|) Met", r"\1 Perhaps", "R2: has no answer"),
    "nothing is said to be missing": (r"^(\| R2 \|[^|]*\|)[^|]*\|", r"\1 Not met |", "R2: has no answer"),
    "no requirement": (r"^\| R2 \|[^|]*\|", "| R2 | |", "R2: a cell is missing"),
    "no code": (r"^(\| R2 \|[^|]*\|[^|]*\|)[^|]*\|", r"\1 |", "R2: is met, but no code is named"),
    "no test": (TEST, "", "R2: is met, but no test is named"),
    "a file of code that is not there": (r"snapshots/strategy\.py", "snapshots/tragedy.py", "there is no file"),
    "a name that is not defined": (r"\[`SnapshotStrategy`\]", "[`SnapshotTragedy`]", "SnapshotTragedy is not defined"),
    "a method that is not defined": (r"`Uploads\.complete`", "`Uploads.repeat`", "Uploads.repeat is not defined"),
    "a file of tests that is not there": (r"suites/strategy\.py", "suites/tragedy.py", "there is no file"),
    "a test that is not there": (
        r"`test_one_strategy_takes_many_snapshots`",
        "`test_one_strategy_takes_no_snapshot`",
        "test_one_strategy_takes_no_snapshot is not defined",
    ),
    "code in the place of a test": (
        r"`test_one_strategy_takes_many_snapshots`",
        "`SnapshotStrategySuite`",
        "SnapshotStrategySuite is not defined",
    ),
    "a decision that is not there": (r"\[decision 44\]", "[decision 4444]", "there is no decision 4444"),
    "a decision elsewhere": (
        r"(\[decision 44\])\([^)]*\)",
        r"\1(../../CHANGELOG.md)",
        "there is no decision 44 in ../../CHANGELOG.md",
    ),
    "different without a decision": (r"\(?\[decision 9\]\([^)]*\)\)?", "", "R48: is different, but no decision"),
}


@pytest.mark.parametrize("broken", BREAKS)
def test_broken_rows_and_links_are_detected(broken: str) -> None:
    pattern, other, problem = BREAKS[broken]
    text, times = re.subn(pattern, other, PAGE.read_text(), flags=re.MULTILINE)
    assert times > 0, "the page has no such place"
    assert any(problem in each for each in problems(text)), problems(text)
