"""Metrics as Airflow's own: in a process with its configuration, through its client, to receivers on loopback.

What a task's process does before its task is done here too: Airflow's metrics are set up from the configuration."""

import subprocess
import sys
from collections.abc import Mapping

import pyarrow as pa
import pytest
from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import ExportMetricsServiceRequest

from demo.places import Places, Ports, environment, statelib_settings
from statelib.flows import wiring
from statelib.flows.views.verification import verify_pipeline
from statelib.flows.wiring import Deployment
from statelib.model.ids import CheckpointId, PipelineName
from statelib.telemetry.metrics import COMPLETED, METRICS, MetricKind
from tests.integration.receivers import Posted, StatsD, http, statsd
from tests.support.worlds import checkpoint_of

SALES = """\
name: sales
source: {path: "{data}/{start:%Y-%m-%d}", columns: {user: string, price: long}}
key: [user]
on_null_key: drop
on_gap: allow
states:
  total: {kind: reducing, value: {agg: sum, of: price}}
  last: {kind: value, fields: {price: {agg: last, of: price, by: price}}}
backend: rocksdb
parallelism: 2
checkpoint: {tolerable_failures: 99, strategy: incremental, inline_threshold_bytes: 0}
"""
SCRIPT = """
from airflow.sdk.observability import stats
from airflow.sdk.observability.metrics import stats_utils
stats.initialize(factory=stats_utils.get_stats_factory(), export_legacy_names=False)
from statelib_airflow.runtime import cleaning, observing
from statelib_airflow.hooks import StatelibHook
from statelib.flows.checkpoint.steps import abort, begin
from statelib.model.quality import QualityResult, Severity
from statelib.model.checkpoint import DataInterval
from statelib.flows import wiring
from statelib.flows.cleanup.garbage import collect_garbage
from statelib.flows.cleanup.orphans import orphans
from statelib.model.ids import CheckpointId, PipelineName
deployment = wiring.deployment()
pipeline, hook, day = deployment.pipeline("sales"), StatelibHook(), 86_400_000
third = DataInterval(1_357_171_200_000, 1_357_171_200_000 + day)
observing.registered(deployment.catalog().get(PipelineName("sales"), CheckpointId(2)), hook, pipeline)
begin(deployment, pipeline, third, "killed before its task abort")
with observing.aborted(hook, "sales"):
    begun = begin(deployment, pipeline, third, "test")
for number in (begun.checkpoint_id, begun.checkpoint_id, CheckpointId(2)):
    with observing.aborted(hook, "sales"):
        abort(deployment, "sales", number, "poisoned")
passed = QualityResult("structure", "files", Severity.FAIL, True, 3, 0)
warned = QualityResult("drift", "keys", Severity.WARN, False, 1, 1)
observing.judged("sales", (passed, passed, warned))
cleaning.verify(hook, "sales", "100%", "")
observing.restored("sales")
observing.collected(collect_garbage(deployment))
observing.orphans(orphans(deployment))
"""
TAGS = "pipeline=sales,kind=checkpoint,strategy=incremental"
EXPECTED = {metric.name for metric in METRICS}


@pytest.fixture(scope="module")
def places(tmp_path_factory: pytest.TempPathFactory) -> Places:
    """Return a deployment with two completed checkpoints."""
    root = tmp_path_factory.mktemp("metrics")
    (root / "pipelines").mkdir()
    (root / "pipelines" / "sales.yaml").write_text(SALES)
    places = Places(work=root / "work", pipelines=root / "pipelines")
    places.make_directories()
    deployment = wiring.deployment(statelib_settings(places))
    for number, users in ((1, ["a", "b", "c"]), (2, ["c", "d", "c", "d"])):
        checkpoint_of(deployment, "sales", number, pa.table({"user": users, "price": [number] * len(users)}))
    return places


def run_script(places: Places, settings: Mapping[str, str]) -> str:
    """Run the script in a process of its own and return its output."""
    env = environment(places, Ports()) | settings
    done = subprocess.run([sys.executable, "-c", SCRIPT], env=env, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[-3000:]
    return done.stderr + done.stdout


def statsd_settings(port: int) -> dict[str, str]:
    return {
        "AIRFLOW__METRICS__STATSD_ON": "True",
        "AIRFLOW__METRICS__STATSD_HOST": "127.0.0.1",
        "AIRFLOW__METRICS__STATSD_PORT": str(port),
        "AIRFLOW__METRICS__STATSD_INFLUXDB_ENABLED": "True",
    }


def test_statsd_receives_every_metric_with_its_tags(places: Places) -> None:
    with statsd() as received:
        run_script(places, statsd_settings(received.port))
    check_values(places, received)
    own = {line.partition(",")[0].removeprefix("airflow.") for line in received.lines}
    assert {name for name in own if name.startswith("statelib.")} == EXPECTED


def check_values(places: Places, received: StatsD) -> None:
    deployment: Deployment = wiring.deployment(statelib_settings(places))
    record = deployment.catalog().get(PipelineName("sales"), CheckpointId(2))
    assert record.measured is not None
    values = {name: received.values(f"airflow.{name}").get(TAGS) for name in EXPECTED}
    assert values["statelib.checkpoint.completed"] == 1
    assert (values["statelib.checkpoint.keys"], record.entries) == (record.keys, 8), "four users in two states"
    assert record.keys == 4
    assert values["statelib.checkpoint.keys_changed"] == record.measured.keys_changed == 2
    assert values["statelib.checkpoint.events"] == 4
    assert values["statelib.checkpoint.size_bytes"] == record.size_bytes
    assert values["statelib.checkpoint.uploaded_bytes"] == record.measured.uploaded_bytes
    assert record.completed_at_ms is not None
    assert values["statelib.checkpoint.duration"] == record.completed_at_ms - record.created_at_ms
    assert values["statelib.checkpoint.upload_duration"] == record.measured.upload_ms
    by_state = received.values("airflow.statelib.checkpoint.state_entries")
    assert by_state == {f"{TAGS},state=total": 4, f"{TAGS},state=last": 4}
    failures = received.values("airflow.statelib.checkpoint.failures")
    assert len([line for line in received.lines if ".checkpoint.failures," in line]) == 2
    ways = {f"{TAGS},reason={reason}": 1 for reason in ("TASK_FAILURE", "CHECKPOINT_SUBSUMED")}
    assert failures == ways, "each once, and none for the one that is complete"
    checks = received.values("airflow.statelib.gate.checks")
    of = "pipeline=sales,severity="
    assert checks == {
        f"{of}fail,result=passed": 2,
        f"{of}fail,result=failed": 0,
        f"{of}warn,result=passed": 0,
        f"{of}warn,result=failed": 1,
    }
    verified = {"checkpoints": 2, "read_bytes": verify_pipeline(deployment, "sales").bytes_read, "faults": 0}
    for name, value in verified.items():
        assert received.values(f"airflow.statelib.verify.{name}") == {"pipeline=sales": value}


def test_otlp_receives_every_metric_with_its_tags(places: Places) -> None:
    with http() as received:
        run_script(
            places,
            {
                "AIRFLOW__METRICS__OTEL_ON": "True",
                "OTEL_EXPORTER_OTLP_ENDPOINT": received.url,
                "OTEL_EXPORTER_OTLP_PROTOCOL": "http/protobuf",
            },
        )
    attributes = {name.removeprefix("airflow."): tags for name, tags in points(received).items()}
    assert set(attributes) >= EXPECTED
    assert dict(part.split("=") for part in TAGS.split(",")) in attributes[COMPLETED.name]


def points(received: Posted) -> dict[str, list[dict[str, str]]]:
    """Return the attributes of the points of every metric."""
    attributes: dict[str, list[dict[str, str]]] = {}
    for path, body in received.requests:
        assert path == "/v1/metrics"
        for resource in ExportMetricsServiceRequest.FromString(body).resource_metrics:
            for metric in (m for scope in resource.scope_metrics for m in scope.metrics):
                data = getattr(metric, metric.WhichOneof("data"))
                tags = [{a.key: a.value.string_value for a in point.attributes} for point in data.data_points]
                attributes.setdefault(metric.name, []).extend(tags)
    return attributes


def test_nothing_is_sent_or_logged_if_metrics_and_lineage_are_off(places: Places) -> None:
    with statsd() as received:
        output = run_script(places, {"AIRFLOW__METRICS__STATSD_PORT": str(received.port)})
    assert received.lines == []
    assert "could not be emitted" not in output


def test_an_unreachable_receiver_fails_nothing(places: Places) -> None:
    run_script(
        places,
        {
            "AIRFLOW__METRICS__OTEL_ON": "True",
            "OTEL_EXPORTER_OTLP_ENDPOINT": "http://127.0.0.1:9",
            "OTEL_EXPORTER_OTLP_PROTOCOL": "http/protobuf",
            "OTEL_EXPORTER_OTLP_TIMEOUT": "1",
            "AIRFLOW__OPENLINEAGE__TRANSPORT": '{"type": "http", "url": "http://127.0.0.1:9"}',
        },
    )


def test_the_command_line_sends_metrics_to_an_otlp_receiver(places: Places) -> None:
    with http() as received:
        env = environment(places, Ports()) | {"OTEL_EXPORTER_OTLP_ENDPOINT": received.url}
        for command in (["gc"], ["orphans"], ["restore", "sales", "1", "--yes"]):
            subprocess.run([sys.executable, "-m", "statelib", *command], env=env, check=True, capture_output=True)
    names = {"statelib.gc.deleted_files", "statelib.gc.orphan_files", "statelib.restore.completed"}
    attributes = points(received)
    assert set(attributes) >= names
    assert all({"pipeline": "sales"} in attributes[name] for name in names)


def test_every_kind_of_metric_is_tested() -> None:
    assert {metric.kind for metric in METRICS} == set(MetricKind)
