"""Check that the tests notice changes of the protocol: make many small changes, one at a time, and run the fast tests.

``python -m mutation [--sample 40 --seed 1] [module ...]`` prints the mutants that no test noticed, and their share.
Each runs in a process forked from one that has imported what tests need but nothing of statelib.
"""

import argparse
import ast
import copy
import importlib.abc
import os
import random
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import redirect_stderr, redirect_stdout
from dataclasses import dataclass
from importlib.machinery import ModuleSpec
from pathlib import Path
from types import ModuleType

ROOT = Path(__file__).resolve().parents[2]
TARGETS = (
    *(f"statelib.coordinator.{name}" for name in ("pending_checkpoint", "orphans", "discard", "retention")),
    *(f"statelib.coordinator.{name}" for name in ("checkpoint_lifecycle", "acknowledgements", "invariants")),
    *(f"statelib.coordinator.{name}" for name in ("rebuilding", "state_assignment")),
    *(f"statelib.catalog.{name}" for name in ("leases", "admission", "cleanup", "holdings", "pins")),
)
TESTS = (
    "tests/unit/coordinator",
    *sorted(str(path.relative_to(ROOT)) for path in (ROOT / "tests" / "contract").glob("test_catalog*.py")),
    "tests/property/test_retention_laws.py",
    "tests/property/test_rebuilding_laws.py",
    "tests/property/test_rescaling_assignment.py",
    "tests/property/test_catalog_history.py",
)
HANGS_S = 300
SWAPS: dict[type[ast.cmpop], type[ast.cmpop]] = {
    ast.Eq: ast.NotEq,
    ast.NotEq: ast.Eq,
    ast.Lt: ast.LtE,
    ast.LtE: ast.Lt,
    ast.Gt: ast.GtE,
    ast.GtE: ast.Gt,
    ast.Is: ast.IsNot,
    ast.IsNot: ast.Is,
    ast.In: ast.NotIn,
    ast.NotIn: ast.In,
}
Change = Callable[[ast.AST], None]


@dataclass(frozen=True)
class Mutant:
    module: str
    line: int
    what: str
    source: str


def mutants(module: str) -> Iterator[Mutant]:
    """Return every mutant of a module, in the order of its source."""
    tree = ast.parse(ROOT.joinpath(*module.split(".")).with_suffix(".py").read_text())
    for number, node in enumerate(ast.walk(tree)):
        for what, change in changes(node):
            other = copy.deepcopy(tree)
            twin = next(twin for index, twin in enumerate(ast.walk(other)) if index == number)
            change(twin)
            text = ast.unparse(ast.fix_missing_locations(other))
            yield Mutant(module, getattr(node, "lineno", 0), what, text)


def changes(node: ast.AST) -> Iterator[tuple[str, Change]]:
    if isinstance(node, (ast.If, ast.IfExp, ast.While)):
        yield f"not ({ast.unparse(node.test)})", _negate
    if isinstance(node, ast.comprehension) and node.ifs:
        yield f"without 'if {ast.unparse(node.ifs[0])}'", lambda twin: twin.ifs.clear()  # type: ignore[attr-defined]
    if isinstance(node, ast.Compare) and type(node.ops[0]) in SWAPS:
        yield f"{ast.unparse(node)}: {SWAPS[type(node.ops[0])].__name__}", _swap
    if isinstance(node, ast.BoolOp):
        yield f"{ast.unparse(node)}: and for or", _other_operator
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr in ("where", "values"):
        yield from _without_arguments(node)
    for field in ("body", "orelse"):
        yield from _without_statements(node, field)


def _negate(twin: ast.AST) -> None:
    twin.test = ast.UnaryOp(ast.Not(), twin.test)  # type: ignore[attr-defined]


def _swap(twin: ast.AST) -> None:
    assert isinstance(twin, ast.Compare)
    twin.ops[0] = SWAPS[type(twin.ops[0])]()


def _other_operator(twin: ast.AST) -> None:
    assert isinstance(twin, ast.BoolOp)
    twin.op = ast.Or() if isinstance(twin.op, ast.And) else ast.And()


def _without_arguments(node: ast.Call) -> Iterator[tuple[str, Change]]:
    assert isinstance(node.func, ast.Attribute)
    for part in ("args", "keywords"):
        given = getattr(node, part)
        for index, argument in enumerate(given):
            if isinstance(argument, ast.Starred) or (node.func.attr == "values" and len(given) == 1):
                continue

            def drop(twin: ast.AST, part: str = part, index: int = index) -> None:
                del getattr(twin, part)[index]

            yield f".{node.func.attr} without {ast.unparse(argument)}", drop


def _without_statements(node: ast.AST, field: str) -> Iterator[tuple[str, Change]]:
    statements = getattr(node, field, None)
    if not isinstance(statements, list):
        return
    for index, statement in enumerate(statements):
        plain = isinstance(statement, (ast.Raise, ast.AugAssign, ast.Delete)) or (
            isinstance(statement, ast.Expr) and isinstance(statement.value, ast.Call)
        )
        if plain:

            def drop(twin: ast.AST, index: int = index) -> None:
                getattr(twin, field)[index] = ast.Pass()

            yield f"without '{ast.unparse(statement)[:70]}'", drop


class Replaced(importlib.abc.MetaPathFinder, importlib.abc.Loader):
    """An import hook that gives one module another source."""

    def __init__(self, mutant: Mutant) -> None:
        self._mutant = mutant

    def find_spec(self, name: str, path: object = None, target: object = None) -> ModuleSpec | None:
        return ModuleSpec(name, self) if name == self._mutant.module else None

    def exec_module(self, module: ModuleType) -> None:
        exec(compile(self._mutant.source, f"<{self._mutant.what}>", "exec"), module.__dict__)


def is_noticed(mutant: Mutant | None) -> bool:
    """Return whether a test fails, or does not end. None: the unchanged module."""
    pid = os.fork()
    if pid == 0:
        os.setsid()
        _test(mutant)
    until = time.monotonic() + HANGS_S
    while True:
        ended, status = os.waitpid(pid, os.WNOHANG)
        if ended:
            return os.waitstatus_to_exitcode(status) != 0
        if time.monotonic() > until:
            os.killpg(pid, 9)
            os.waitpid(pid, 0)
            return True
        time.sleep(0.02)


def _test(mutant: Mutant | None) -> None:
    import pytest

    code = 1
    try:
        if mutant is not None:
            sys.meta_path.insert(0, Replaced(mutant))
        with open(os.devnull, "w") as nowhere, redirect_stdout(nowhere), redirect_stderr(nowhere):
            arguments = ["-q", "-x", "-p", "no:randomly", "-p", "no:xdist", "-k", "not postgresql", *TESTS]
            code = int(pytest.main([*arguments, f"--rootdir={ROOT}"]))
    finally:
        os._exit(code)


def main(arguments: list[str]) -> int:
    parser = argparse.ArgumentParser(prog="mutation", description=__doc__)
    parser.add_argument("modules", nargs="*", default=list(TARGETS))
    parser.add_argument("--sample", type=int, help="so many of all, instead of each")
    parser.add_argument("--seed", type=int, default=1)
    given = parser.parse_args(arguments)
    os.chdir(ROOT)
    import hypothesis  # noqa: F401 - before the forks
    import pyarrow as pa  # noqa: F401
    import sqlalchemy  # noqa: F401

    if is_noticed(None):
        print("the tests fail without any change")
        return 2
    chosen = [mutant for module in given.modules for mutant in mutants(module)]
    if given.sample and given.sample < len(chosen):
        chosen = random.Random(given.seed).sample(chosen, given.sample)
    survivors = 0
    for number, mutant in enumerate(chosen, 1):
        if not is_noticed(mutant):
            survivors += 1
            print(f"{mutant.module}:{mutant.line} {mutant.what}", flush=True)
        if number % 10 == 0 or number == len(chosen):
            share = 100 * (number - survivors) / number
            print(f"{number} of {len(chosen)}: {share:.1f} % noticed", flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
