"""Docstrings begin with what a thing is or does, and names say what they hold. A test can only hold back the worst:
a reader decides whether a sentence can be understood."""

import ast
import io
import re
import tokenize
from collections import Counter
from collections.abc import Iterator
from functools import cache

import pytest

from tests.architecture.repository import modules

PLAIN: tuple[str, ...] = (
    "dags",
    "demo",
    "jobs",
    "plugins",
    "statelib/aggregates/",
    "statelib/catalog",
    "statelib/cli",
    "statelib/coordinator",
    "statelib/definition",
    "statelib/backends",
    "statelib/flows/",
    "statelib/formats/",
    "statelib/functions/",
    "statelib/crash_points",
    "statelib/errors",
    "statelib/extras",
    "statelib/model",
    "statelib/publication",
    "statelib/quality",
    "statelib/snapshots",
    "statelib/storage",
    "statelib/restore/",
    "statelib/telemetry",
    "statelib/savepoints",
    "statelib/serializers",
    "statelib/spark",
    "statelib/testing",
    "statelib/visible",
    "statelib/wire/",
    "tests",
    "tools",
)
"""The places whose language is checked: every room, the demonstration, the tests and the tools."""
BEGINNINGS = ("Of ", "As ", "Those ", "The same ", "What ", "With ", "Which ", "Whose ", "Where ", "How ")
LOCAL_NAMES = {"there", "here", "found", "told", "said", "known", "kept"}
FUNCTION_NAMES = {"told", "known", "found", "kept", "_told", "_known", "_found", "_kept", "_said"}
COUNTS = r"one|once|two|three|\d+|bytes|entries|files|rows|records|events|keys|seconds|times"
NOT_AFTER = "".join(
    f"(?<! {word})"
    for word in [
        "of",
        "in",
        "to",
        "for",
        "from",
        "by",
        "with",
        "as",
        "is",
        "at",
        "on",
        "than",
        "or",
        "and",
        "has",
        "have",
        "like",
        "when",
    ]
)
ELLIPTICAL = re.compile(
    rf"\b(?:{COUNTS})(?: \w+){{0,2}}{NOT_AFTER} a (?:key group|subtask|key|run|state|file|call|second)\b"
)
"""An "a" where "per" is meant: "one block of entries a key group"."""

PRIVATE = re.compile(
    r"\b(?:st(?:ands?|ood) on|let(?:s|ting)? go of|(?:is|are|was|were) told|(?:is|are) said (?:in|by)"
    r"|has its say|of those of|what is told|comes about)\b"
)
"""Expressions of statelib's authors: "a pipeline stands on a checkpoint", "retention lets go of it"."""
TEST_NAME = re.compile(
    r"(?:^|_)(?:told|tells?|said|says?|asked|asks?|knows?|heard|goes_on|go_on|gone_on|stands?_on|stood_on|lets?_go"
    r"|letting_go|comes_about)(?:_|$)|^(?:what|which|whose|who|where|how|those|of)_"
)
"""The same in the name of a test, which is a sentence: "a retry is told", "what is left over goes to others"."""
FEWEST_WORDS = 3
"""The number of words that a name of a test needs to say what holds, as "effects_are_detected" does."""


def docstrings(tree: ast.Module) -> Iterator[tuple[int, str]]:
    """Yield (line, docstring) of the module and of each class and function in it."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
            text = ast.get_docstring(node)
            if text:
                yield getattr(node, "lineno", 1), text


def private_comments(text: str) -> Iterator[tuple[int, str]]:
    """Yield (line, what is wrong) of each comment with a private expression."""
    for token in tokenize.generate_tokens(io.StringIO(text).readline):
        if token.type == tokenize.COMMENT:
            for match in PRIVATE.finditer(token.string):
                yield token.start[0], f"private expression {match.group()!r}"


def wrong_test_names(tree: ast.Module) -> Iterator[tuple[int, str]]:
    """Yield (line, what is wrong) of each name of a test that does not say in plain words what holds."""
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and node.name.startswith("test_"):
            name = node.name.removeprefix("test_")
            if match := TEST_NAME.search(name):
                yield node.lineno, f"words {match.group().strip('_')!r} in the name of a test"
            if len(name.split("_")) < FEWEST_WORDS:
                yield node.lineno, f"name of a test {name!r} does not say what holds"


def wrong_words(tree: ast.Module) -> list[tuple[int, str]]:
    """Return (line, what is wrong) of each docstring and name. Fields of a class, such as ``expected`` and ``found``,
    are not local names."""
    wrong = []
    fields = {
        statement.target
        for node in ast.walk(tree)
        if isinstance(node, ast.ClassDef)
        for statement in node.body
        if isinstance(statement, ast.AnnAssign)
    }
    for line, text in docstrings(tree):
        if text.startswith(BEGINNINGS):
            wrong.append((line, f"docstring begins with {text.split()[0]!r}"))
        if ELLIPTICAL.search(text):
            wrong.append((line, "'a' where 'per' is meant"))
        wrong += [(line, f"private expression {match.group()!r}") for match in PRIVATE.finditer(text)]
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and node.name in FUNCTION_NAMES:
            wrong.append((node.lineno, f"function {node.name}"))
        is_stored = isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store) and node not in fields
        if isinstance(node, ast.Name) and is_stored and node.id in LOCAL_NAMES:
            wrong.append((node.lineno, f"local name {node.id!r}"))
        if isinstance(node, ast.arg) and node.arg in LOCAL_NAMES:
            wrong.append((node.lineno, f"argument {node.arg!r}"))
    return sorted(wrong)


@cache
def wrong_lines() -> list[str]:
    """Return a line for each wrong word of the three packages, the demonstration, the tests and the tools. A migration
    is never edited, so it is left out."""
    return [
        f"{path}:{line} {words}"
        for path, text, tree in modules("statelib", "jobs", "plugins", "demo", "tests", "tools")
        if "/migrations/versions/" not in path
        for line, words in [*wrong_words(tree), *wrong_test_names(tree), *private_comments(text)]
    ]


@pytest.mark.parametrize("room", PLAIN)
def test_a_room_has_no_private_words(room: str) -> None:
    assert [line for line in wrong_lines() if line.startswith(room)] == []


def test_no_two_public_classes_have_the_same_name() -> None:
    """No two modules have a public class of the same name."""
    names = Counter(
        node.name
        for _, _, tree in modules("statelib", "jobs", "plugins")
        for node in tree.body
        if isinstance(node, ast.ClassDef) and not node.name.startswith("_")
    )
    assert [name for name, times in names.items() if times > 1] == []


@pytest.mark.parametrize(
    "source",
    [
        '"""Of the pipelines that ever began."""',
        '"""Return the checkpoint that a pipeline stands on."""',
        'def f():\n    """As g, or as h does it."""',
        'def f():\n    """Return one file a subtask, whole."""',
        "def _told(): pass",
        "class C:\n    def found(self): pass",
        "def f():\n    there = 1",
        "def f(here): pass",
    ],
)
def test_private_words_are_detected(source: str) -> None:
    assert len(wrong_words(ast.parse(source))) == 1


@pytest.mark.parametrize(
    "name", ["a_retry_is_told_the_reason", "the_log_goes_on", "what_is_left_is_removed", "days", "bad_offsets"]
)
def test_names_of_tests_in_private_words_are_detected(name: str) -> None:
    assert len(list(wrong_test_names(ast.parse(f"def test_{name}(): pass")))) == 1


def test_private_comments_are_detected() -> None:
    assert list(private_comments("x = 1  # the pipeline stands on it\n")) == [(1, "private expression 'stands on'")]
    assert list(private_comments("x = 'stands on'  # the head of the pipeline\n")) == []


def test_plain_words_pass() -> None:
    source = 'def f(directory):\n    """Return the size of a subtask in bytes, a key group at a time."""\n    size = 1'
    source += "\nclass C:\n    expected: str\n    found: str"
    assert wrong_words(ast.parse(source)) == []
