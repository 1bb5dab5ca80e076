"""Every command with ``--json`` prints one document, with the keys that the reference promises, and nothing else."""

import json
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from statelib.cli.answers import ANSWERS, CHECKED, ERROR, Answer
from statelib.flows.wiring import Deployment
from tests.integration.shop import SALES, open_shop
from tests.integration.shop_cli import call
from tests.integration.test_cli import commands
from tests.support.bootstraps import HISTORY

CALLS = {
    "publish": "sales --dry-run",
    "run": "sales --start 2013-01-03 --end 2013-01-04 --dry-run",
    "inspect": "sales/5",
    "hexdump": "sales/5",
    "export": "sales/5 -o {root}/entries.jsonl",
    "query": "sales FROM/**/total",
    "verify": "",
    "gc": "--dry-run",
    "orphans": "",
    "why": "{root}/state/sales/chk-5/_metadata",
    "restore": "sales 5 --dry-run",
    "history": "",
    "checkpoints list": "",
    "checkpoints show": "sales/5",
    "checkpoints diff": "sales/1 sales/5",
    "checkpoints dispose": "sales/4 --dry-run",
    "pipelines list": "",
    "pipelines validate": "",
    "pipelines schema": "",
    "pipelines fork": "sales/5 branch",
    "pipelines plan": "sales",
    "pipelines status": "sales",
    "pipelines cancel": "tours",
    "pipelines resume": "tours",
    "savepoint dispose": "sales/4 --dry-run",
    "savepoint rewrite": "{root}/state/savepoints/savepoint-sales-4 -t {root}/rewritten",
    "catalog migrate": "",
    "catalog check": "",
    "catalog rebuild": "--merge --dry-run",
}
ELSEWHERE = {
    "savepoint create",
    "bootstrap",
    "import-statestore",
    "mend",
    "checkpoints release",
    "pipelines discard",
    "pipelines seed",
    "pipelines stop",
}
"""Commands that are called below, or in test_bootstrap_on_spark.py, test_statestore_import.py, test_mend_command.py,
test_quarantine_flow.py, test_seed_command.py and test_without_file.py."""


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("json")


@pytest.fixture(scope="module")
def shop(root: Path) -> Deployment:
    deployment = open_shop(root)
    (root / "pipelines" / "branch.yaml").write_text(SALES.replace("name: sales", "name: branch"))
    (root / "history.yaml").write_text(HISTORY)
    return deployment


def answer_of(deployment: Deployment, *words: object, status: int = 0) -> Any:
    result = call(deployment, *words, "--json")
    assert (result.exit_code, result.stderr) == (status, ""), result.output
    return json.loads(result.stdout)


def assert_keys(answer: Answer, document: Any) -> None:
    assert isinstance(document, list) is answer.many
    for each in document if answer.many else [document]:
        assert set(each) == set(answer.keys)


def test_every_command_has_a_declared_json_answer() -> None:
    assert set(commands()) == set(ANSWERS) == set(CALLS) | ELSEWHERE


@pytest.mark.parametrize("command", CALLS)
def test_the_keys_of_each_answer_are_those_of_the_reference(shop: Deployment, root: Path, command: str) -> None:
    words = CALLS[command].format(root=root).split()
    assert_keys(ANSWERS[command], answer_of(shop, *command.split(), *words))


def test_an_error_is_a_json_answer_too(shop: Deployment) -> None:
    for words in (["run", "sails"], ["verify", "sales/99"], ["catalog", "rebuild"], ["savepoint", "create", "sails"]):
        assert_keys(ERROR, answer_of(shop, *words, status=2))


def test_the_answers_of_commands_with_spark_have_the_declared_keys(
    shop: Deployment, root: Path, spark: SparkSession
) -> None:
    assert_keys(ANSWERS["savepoint create"], answer_of(shop, "savepoint", "create", "sales", "--note", "for machines"))
    assert_keys(ANSWERS["pipelines stop"], answer_of(shop, "pipelines", "stop", "sales", "--savepoint"))
    answer_of(shop, "pipelines", "resume", "sales")
    assert_keys(CHECKED, answer_of(shop, "bootstrap", root / "history.yaml", "-t", root / "flink", "--check"))
