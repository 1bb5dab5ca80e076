"""The log of a run describes each subtask's snapshot and every obstacle that it meets."""

import logging
import sys
from pathlib import Path
from types import ModuleType

import pyarrow as pa
import pytest

from tests.support.worlds import checkpoint_of, new_deployment

MODULE = "statelib_test_logged_functions"
STOCK = f"""\
name: stock
source: {{path: "{{data}}/{{start}}-{{end}}", columns: {{shop: string}}}}
key: [shop]
states: {{seen: {{kind: value, fields: {{n: long}}, function: "{MODULE}:update"}}}}
backend: rocksdb
parallelism: 2
checkpoint: {{strategy: incremental}}
"""


def test_the_steps_of_a_snapshot_are_logged(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def update(events: pa.Table, state: pa.Table) -> pa.Table:
        for database in Path(deployment.work_directory).rglob("db"):  # This is what a killed process would leave.
            (database.parent / "chk-1").mkdir()
        return pa.table({"shop": state["shop"], "n": [len(events)] * len(state)})

    module = ModuleType(MODULE)
    module.update = update  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, MODULE, module)
    (tmp_path / "pipelines").mkdir()
    (tmp_path / "pipelines" / "stock.yaml").write_text(STOCK)
    deployment = new_deployment(tmp_path, tmp_path, tmp_path / "pipelines")
    caplog.set_level(logging.DEBUG, "statelib")
    checkpoint_of(deployment, "stock", 1, pa.table({"shop": ["one"]}))
    lines = [(record.levelname, record.getMessage()) for record in caplog.records]
    operator = "Asynchronous operator state snapshot"
    assert lines.count(("INFO", f"snapshot begins: Asynchronous incremental RocksDB snapshot, {operator}")) == 2
    empty = ("INFO", f"{operator}: no state is registered, nothing is written")
    assert lines.count(empty) == 1, "the first subtask keeps the source position"
    frozen = [text.rpartition(" ")[2] for level, text in lines if level == "DEBUG" and "are linked in" in text]
    assert len(frozen) == 2
    assert all(path.startswith(deployment.work_directory) and path.endswith("/chk-1") for path in frozen)
    (replaced,) = [text for level, text in lines if level == "WARNING"]
    assert replaced == f"{replaced.partition(' ')[0]} exists already, left by an earlier try, and is replaced"
    assert replaced.partition(" ")[0] in frozen
