"""Every call that changes what outlives a process has a crash point in its function; every crash point has a name."""

import ast
from collections.abc import Iterator

import pytest

from statelib.crash_points import POINTS, TRANSACTIONS
from tests.architecture.repository import modules

CHANGES = frozenset(
    [f"os.{name}" for name in ("link", "symlink", "unlink", "remove", "rename", "replace", "rmdir", "mkdir")]
    + ["os.makedirs", "shutil.rmtree", "shutil.move", "obstore.put", "obstore.delete", "obstore.copy"]
    + ["create_file", "create_in", ".create_checkpoint", ".rename", ".unlink", ".mkdir", ".rmdir"]
)
"""Calls that change something, by their names; a leading dot means a method of any object."""
NOT_LOOKED_AT = ("statelib/testing/", "statelib/cli/", "statelib/quality/", "statelib/savepoints/diff/output.py")
"""These write a report or a user's own file, and no state."""

HELD = "live state of one task: it goes with the task's scratch directory"
WITHOUT = {
    "statelib/backends/rocksdb/backend.py:__init__": HELD,
    "statelib/backends/rocksdb/backend.py:open_existing": HELD,
    "statelib/backends/rocksdb/backend.py:checkpoint": HELD,
    "statelib/backends/rocksdb/backend.py:_dispose": HELD,
    "statelib/backends/rocksdb/writing/new_tables.py": HELD,
    "statelib/publication/parquet/bucket.py:complete": "a local copy, between two points of the bucket",
    "statelib/restore/entries.py": HELD,
    "statelib/restore/live/keyed.py": HELD,
    "statelib/restore/live/logged.py": HELD,
    "statelib/restore/stored/proof.py": HELD,
    "statelib/restore/stored/rocksdb_files.py": HELD,
    "statelib/storage/filesystem/reader.py:new_file": HELD,
    "statelib/storage/local/scratch.py:_remove_abandoned": "between two of its points, repeated by the next task",
    "statelib/storage/filesystem/publish.py:_create_temporary": "its caller has a point behind it",
    "statelib/storage/filesystem/publish.py:_link": "its caller has points around it",
    "statelib/savepoints/tables/parquet_files.py:export_parquet": "a user's own file",
    "statelib/storage/filesystem/descriptors.py:create_in": "its callers have points behind it",
    "statelib/storage/local/streams.py:__init__": "a local copy, within a directory that has points around it",
    "statelib/storage/local/streams.py:_unlink": "the same",
    "statelib/storage/local/store.py:discard": "the same",
    "statelib/storage/local/store.py:clear": "the same",
}
"""Functions, or whole files, that need no crash point, with the reason."""

Function = ast.FunctionDef | ast.AsyncFunctionDef


def functions(tree: ast.Module) -> Iterator[Function]:
    """Return the outermost functions and methods; inner functions belong to them."""
    for node in tree.body:
        for inner in node.body if isinstance(node, ast.ClassDef) else [node]:
            if isinstance(inner, Function):
                yield inner


def calls(function: ast.AST) -> list[ast.Call]:
    return [node for node in ast.walk(function) if isinstance(node, ast.Call)]


def names_of(call: ast.Call) -> set[str]:
    """Return the names by which a function is called: ``os.link`` is called by that name and by ``.link``."""
    name = ast.unparse(call.func)
    return {name, f".{name.rpartition('.')[2]}"} if isinstance(call.func, ast.Attribute) else {name}


def unlabelled(path: str, tree: ast.Module) -> list[str]:
    """Return ``path:function`` of the functions that change something and have no crash point."""
    unlabelled_calls = []
    for function in functions(tree):
        made = calls(function)
        changes = any(names_of(call) & CHANGES for call in made)
        if changes and not any(names_of(call) & {"crash_point", "at"} for call in made):
            unlabelled_calls.append(f"{path}:{function.name}")
    return unlabelled_calls


def points_in(tree: ast.Module) -> Iterator[str]:
    """Return the names passed to ``crash_point`` and to ``at`` in the cleanup flow."""
    for call in calls(tree):
        if ast.unparse(call.func) in ("crash_point", "at") and isinstance(call.args[0], ast.Constant):
            yield call.args[0].value


def writes(tree: ast.Module) -> Iterator[tuple[int, str]]:
    """Return (line, what it writes) of each transaction that is not read-only; '' if the transaction has no name."""
    for call in calls(tree):
        method = ast.unparse(call.func).rpartition(".")[2]
        if method not in ("transaction", "_transaction") or any(k.arg == "read_only" for k in call.keywords):
            continue
        named = [a.value for a in call.args if isinstance(a, ast.Constant) and isinstance(a.value, str)]
        yield call.lineno, named[0] if named else ""


def looked_at() -> Iterator[tuple[str, ast.Module]]:
    for path, _, tree in modules("statelib"):
        if not path.startswith(NOT_LOOKED_AT):
            yield path, tree


def test_every_change_has_a_crash_point() -> None:
    unlabelled_calls = [name for path, tree in looked_at() for name in unlabelled(path, tree)]
    assert [name for name in unlabelled_calls if name not in WITHOUT and name.partition(":")[0] not in WITHOUT] == []


def test_every_transaction_has_a_name() -> None:
    unlabelled_calls = [(path, *write) for path, tree in looked_at() for write in writes(tree)]
    assert [(path, line) for path, line, write in unlabelled_calls if write not in TRANSACTIONS] == []
    assert sorted(write for _, _, write in unlabelled_calls) == sorted(TRANSACTIONS), "one transaction, one name"


def test_every_crash_point_is_registered_and_every_registered_one_exists() -> None:
    named = {name for _, tree in looked_at() for name in points_in(tree)}
    assert named == POINTS.keys() - {f"{name}: {when}" for name in TRANSACTIONS for when in ENDS}


ENDS = ("before commit", "committed")


@pytest.mark.parametrize(
    "change",
    [
        "os.link(a, b)",
        "obstore.put(s, k, d)",
        "Checkpoint(db).create_checkpoint(d)",
        "path.unlink()",
        "create_file(d, n)",
    ],
)
def test_a_change_without_a_crash_point_is_detected(change: str) -> None:
    bare = f"class C:\n  def f():\n    with x: {change}\n"
    assert unlabelled("x.py", ast.parse(bare)) == ["x.py:f"]
    assert unlabelled("x.py", ast.parse(bare + '    crash_point("linked")\n')) == []


def test_a_transaction_without_a_name_is_detected() -> None:
    tree = ast.parse('with self.transaction() as c: pass\nwith transaction(engine, "commit"): pass\nt(read_only=True)')
    assert list(writes(tree)) == [(1, ""), (2, "commit")]
