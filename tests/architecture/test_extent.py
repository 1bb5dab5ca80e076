"""The sample of a matrix contains every value, is small, and is the same in every process. What a test that is left
out names in its place is run."""

import ast
import re
from collections.abc import Iterator
from itertools import product
from pathlib import Path
from typing import TypeGuard

import pytest

from tests.architecture.repository import modules
from tests.support.extent import TEST_ALL, cases, sample

AXES = [("a", "b", "c", "d", "e", "f", "g"), (False, True), ("x", "y", "z"), (1,)]


def test_every_value_is_in_the_sample() -> None:
    chosen = sample(list(product(*AXES)))
    for axis, values in enumerate(AXES):
        counted = [sum(case[axis] == value for case in chosen) for value in values]
        assert min(counted) >= 1
        assert max(counted) - min(counted) <= 1
    assert len(chosen) == max(map(len, AXES))
    assert chosen == sample(list(product(*AXES)))


@pytest.mark.skipif(TEST_ALL, reason="all cases are run")
def test_impossible_cases_are_in_no_sample() -> None:
    chosen = cases(*AXES, possible=lambda letter, flag, *_: flag or letter != "a")
    assert ("a", False) not in {case[:2] for case in chosen}
    assert {case[0] for case in chosen} == set(AXES[0])


def is_large(node: ast.AST) -> TypeGuard[ast.Call]:
    return isinstance(node, ast.Call) and ast.unparse(node.func) == "large"


def left_out(node: ast.AST) -> Iterator[str]:
    """Yield the reason of each test, or set of parameters, below ``node`` that ``make test`` leaves out."""
    for each in ast.walk(node):
        if is_large(each) and isinstance(each.args[0], ast.Constant):
            yield str(each.args[0].value)


def whether_run() -> tuple[dict[str, bool], list[str]]:
    """Return whether ``make test`` runs anything of each file and function of tests, by its name, and all reasons."""
    run: dict[str, bool] = {}
    reasons: list[str] = []
    for path, text, tree in modules("tests"):
        if "support.extent import" in text:
            reasons += left_out(tree)
        marked = [n for n in tree.body if isinstance(n, ast.Assign) and ast.unparse(n.targets[0]) == "pytestmark"]
        whole = any(is_large(node) for each in marked for node in ast.walk(each))
        functions = [n for n in ast.walk(tree) if isinstance(n, ast.FunctionDef) and n.name.startswith("test_")]
        for each in functions:
            run[each.name] = not whole and not any(map(is_large, each.decorator_list))
        run[Path(path).stem] = any(run[each.name] for each in functions)
    return run, reasons


def test_a_large_test_names_only_tests_that_are_run() -> None:
    run, reasons = whether_run()
    named = {name for reason in reasons for name in re.findall(r"\btest_\w+", reason)}
    assert "test_s3_fault_scripts" in named
    assert [name for name in sorted(named) if not run.get(name)] == []
