"""Clock, identities, randomness and the environment are arguments: only shells and wiring read them."""

import ast

import pytest

from tests.architecture.repository import dotted_names, modules

ALLOWED = (
    "statelib/flows/wiring.py",
    "statelib/storage/registry.py",
    "statelib/spark/session/daemon.py",
    "statelib/cli/",
    "statelib/storage/objects/clients.py",
)
"""Files that may read effects, beside the rooms that are not checked: jobs, dags, plugins, demo, tests. The
daemon is a process of its own. The
libraries of object storages make clients from the environment; ours checks whether it has changed."""

EFFECTS = (
    "time.time",
    "time.time_ns",
    "time.localtime",
    "time.gmtime",
    "datetime.datetime.now",
    "datetime.datetime.utcnow",
    "datetime.datetime.today",
    "datetime.date.today",
    "uuid.uuid1",
    "uuid.uuid4",
    "random",
    "secrets",
    "numpy.random",
    "os.environ",
    "os.environb",
    "os.getenv",
    "os.putenv",
    "os.urandom",
    "os.getrandom",
)


def effects(tree: ast.Module) -> list[tuple[int, str]]:
    """Return (line, name) of each forbidden effect, once."""
    hits = {(line, effect) for line, name in dotted_names(tree) for effect in EFFECTS if reaches(name, effect)}
    return sorted(hits)


def reaches(name: str, effect: str) -> bool:
    return (name + ".").startswith(effect + ".")


def test_the_library_reads_no_effects() -> None:
    effect_reads = [
        f"{path}:{line} {name}"
        for path, _, tree in modules("statelib")
        if not path.startswith(ALLOWED)
        for line, name in effects(tree)
    ]
    assert effect_reads == []


@pytest.mark.parametrize(
    ("source", "effect"),
    [
        ("import time\nnow = time.time()", "time.time"),
        ("import time as t\nf(t.time_ns)", "time.time_ns"),
        ("from time import time as clock", "time.time"),
        ("from datetime import datetime, UTC\ndatetime.now(UTC)", "datetime.datetime.now"),
        ("import datetime as dt\ndt.date.today()", "datetime.date.today"),
        ("import uuid\nuuid.uuid4().hex", "uuid.uuid4"),
        ("import random", "random"),
        ("from random import choice", "random"),
        ("import numpy as np\nnp.random.default_rng()", "numpy.random"),
        ("import os\ndef f(e=os.environ): pass", "os.environ"),
        ("def f():\n  import os\n  os.environ['A']", "os.environ"),
        ("from os import getenv", "os.getenv"),
    ],
)
def test_effects_are_detected(source: str, effect: str) -> None:
    assert {name for _, name in effects(ast.parse(source))} == {effect}


@pytest.mark.parametrize(
    "source",
    [
        "import time\ntime.monotonic()",
        "from datetime import datetime\ndatetime.fromtimestamp(0)",
        "def f(time, random, uuid): return time.time(), random.random(), uuid.uuid4()",
        "import os\nos.path.join('environ')",
        "from uuid import UUID",
    ],
)
def test_other_calls_are_not_reported_as_effects(source: str) -> None:
    assert effects(ast.parse(source)) == []
