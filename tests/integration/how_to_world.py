"""The deployment of docs/how-to.md: the tutorial's pipeline after six days, without Spark."""

import shutil
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pyarrow as pa

from statelib.definition.columns import event_schema
from statelib.flows.checkpoint.steps import abort, begin, check, register
from statelib.flows.savepoint.steps import begin_savepoint
from statelib.flows.wiring import Deployment
from statelib.model.checkpoint import DataInterval
from statelib.model.failure import CheckpointFailureReason
from statelib.model.ids import CheckpointId, PipelineName
from statelib.storage.uris import local_path
from tests.integration.document_steps import steps
from tests.integration.foreign import savepoint as flink_savepoint
from tests.support.worlds import CHECKOUT, publish_here

FIRST = datetime(2026, 1, 1, tzinfo=UTC)
ITEMS = ("tea", "coffee", "cocoa")


def pipeline_file() -> str:
    tutorial = (CHECKOUT / "docs" / "tutorial.md").read_text(encoding="utf-8")
    (text,) = (step.text for step in steps(tutorial) if step.file == "pipelines/customers.yaml")
    more = "{inline_threshold_bytes: 1024, retain: {count: 3}}"
    return text.replace("rocksdb", "heap").replace("{strategy: incremental}", more)


def six_days(root: Path) -> Deployment:
    """Make the checkpoints 1 to 6, savepoint 7, and checkpoint 8, of which a file was lost before it was checked."""
    for name in ("pipelines", "data", "state", "reports", "scratch"):
        (root / name).mkdir()
    (root / "pipelines" / "customers.yaml").write_text(pipeline_file())
    places = (root / "state", root / "pipelines", root / "data", root / "reports", root / "scratch")
    deployment = Deployment(f"sqlite:///{root}/catalog.db", *map(str, places))
    for number in range(1, 7):
        _publish(deployment, number)
    pipeline = deployment.pipeline("customers")
    begun = begin_savepoint(
        deployment, pipeline, format="canonical", target=None, note="release 11", owner="you", key="1"
    )
    publish_here(deployment, pipeline, begun.checkpoint_id)
    register(deployment, pipeline, begun.checkpoint_id)
    _lose_a_file(deployment)
    shutil.copytree(flink_savepoint("1.20.5/kinds-hashmap-canonical-p1"), root / "flink-savepoint")
    return deployment


def _publish(deployment: Deployment, number: int, *, registers: bool = True) -> int:
    pipeline = deployment.pipeline("customers")
    start = FIRST + timedelta(days=number - 1)
    start_ms = int(start.timestamp() * 1000)
    begun = begin(deployment, pipeline, DataInterval(start_ms, start_ms + 86_400_000), "customers.checkpoint")
    rows = [
        {
            "customer": f"customer-{n * number % 400:03}",
            "item": ITEMS[n % 3],
            "amount": 1 + n % 9,
            "ordered_at": start + timedelta(seconds=n),
        }
        for n in range(4000)
    ]
    publish_here(deployment, pipeline, begun.checkpoint_id, pa.Table.from_pylist(rows).cast(event_schema(pipeline)))
    if registers:
        register(deployment, pipeline, begun.checkpoint_id)
    return int(begun.checkpoint_id)


def _lose_a_file(deployment: Deployment) -> None:
    """Remove a file that the storage has acknowledged. The gate detects it, and the run ends as the DAG's does."""
    pipeline = deployment.pipeline("customers")
    number = _publish(deployment, 7, registers=False)
    record = deployment.catalog().get(PipelineName("customers"), CheckpointId(number))
    own = [path for path in sorted(Path(local_path(record.directory)).iterdir()) if path.name != "_metadata"]
    own[0].unlink()
    try:
        check(deployment, pipeline, record.checkpoint_id)
    except Exception as error:
        reason = CheckpointFailureReason.FINALIZE_CHECKPOINT_FAILURE
        abort(deployment, "customers", record.checkpoint_id, str(error), reason)
    else:
        raise AssertionError(f"checkpoint {number} was found complete")
