"""Files and functions stay small enough to be read at once, and folders to be surveyed."""

import ast
from collections import Counter
from pathlib import PurePosixPath

from tests.architecture.repository import modules

ROOMS = ("statelib", "jobs", "dags", "plugins", "tests")
MAX_FILE_LINES = 400
MAX_FUNCTION_LINES = 50
MAX_MODULES = 14
NOUNS = "statelib/model"
"""The folder of plain values that all others import: its names are looked up, not surveyed."""


def long_functions(tree: ast.Module) -> list[tuple[str, int]]:
    """Return (name, lines) of the functions that are too long. Decorators are not counted."""
    functions = [node for node in ast.walk(tree) if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)]
    sizes = [(node.name, (node.end_lineno or 0) - node.lineno + 1) for node in functions]
    return [(name, size) for name, size in sizes if size > MAX_FUNCTION_LINES]


def test_files_have_at_most_400_lines() -> None:
    sizes = {path: len(text.splitlines()) for path, text, _ in modules(*ROOMS)}
    assert {path: size for path, size in sizes.items() if size > MAX_FILE_LINES} == {}


def test_folders_have_at_most_14_modules() -> None:
    folders = Counter(str(PurePosixPath(path).parent) for path, _, _ in modules("statelib", "jobs", "dags", "plugins"))
    assert {folder: size for folder, size in folders.items() if size > MAX_MODULES and folder != NOUNS} == {}


def test_functions_have_at_most_50_lines() -> None:
    assert [(path, *function) for path, _, tree in modules(*ROOMS) for function in long_functions(tree)] == []


def test_the_length_of_a_function_is_measured_without_decorators() -> None:
    body = "    pass\n"
    assert long_functions(ast.parse("@d\ndef f():\n" + body * 49)) == []
    assert long_functions(ast.parse("class C:\n  async def f():\n" + body * 50)) == [("f", 51)]
