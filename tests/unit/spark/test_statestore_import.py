"""The savepoint of an import of a state store, and when a repeated import is the same one."""

from pathlib import Path

from statelib.flows.savepoint.imports import begin_import
from statelib.spark.imports.statestore import StateStoreMapping
from statelib.spark.imports.statestore_import import StateStoreImport
from tests.support.worlds import new_deployment

PIPELINE = """\
name: p
source: {path: "{data}/{start}-{end}", columns: {shop: string, amount: long}}
key: [shop]
states: {total: {kind: value, value: {agg: sum, of: amount}}}
backend: heap
"""


def test_an_import_with_another_mapping_is_another_savepoint(tmp_path: Path) -> None:
    (tmp_path / "pipelines").mkdir()
    (tmp_path / "pipelines" / "p.yaml").write_text(PIPELINE)
    deployment = new_deployment(tmp_path, tmp_path, tmp_path / "pipelines")

    def number(**fields: str | dict[str, str]) -> int:
        wanted = StateStoreImport("/query", {}, StateStoreMapping("total", **fields))
        return begin_import(deployment, deployment.pipeline("p"), str(wanted), "test").checkpoint_id

    first = number(values={"": "value.count"})
    assert number(values={"": "value.count"}) == first
    others = [number(values={"": "value.sum"}), number(keys={"shop": "key.store"}), number(user_key="key.item")]
    assert len({first, *others}) == 4
