"""The table of metrics, and a receiver that fails."""

import logging

import pytest

from statelib.telemetry.metrics import COMPLETED, METRICS, SIZE, Harmless, Metric, Tags
from statelib.telemetry.sending import is_configured, sending


def test_metric_names_are_unique_and_valid_for_every_receiver() -> None:
    names = [metric.name for metric in METRICS]
    assert len(set(names)) == len(names)
    for metric in METRICS:
        assert metric.name.startswith("statelib.")
        assert len(f"airflow.{metric.name}") <= 63, "Airflow's limit for OpenTelemetry"
        assert metric.tags[0] == "pipeline"


class Broken:
    def emit(self, metric: Metric, value: float, tags: Tags) -> None:
        raise OSError("gone")


def test_an_unreachable_receiver_is_logged_once_and_fails_nothing(caplog: pytest.LogCaptureFixture) -> None:
    telemetry = Harmless(Broken())
    with caplog.at_level(logging.WARNING):
        telemetry.emit(COMPLETED, 1, {})
        telemetry.emit(SIZE, 1, {})
    assert [record.getMessage() for record in caplog.records] == [
        "metrics cannot be sent, from statelib.checkpoint.completed on: gone"
    ]


@pytest.mark.parametrize(
    ("environ", "expected"),
    [
        ({}, False),
        ({"OTEL_EXPORTER_OTLP_ENDPOINT": ""}, False),
        ({"OTEL_EXPORTER_OTLP_ENDPOINT": "http://c:4318"}, True),
        ({"OTEL_EXPORTER_OTLP_METRICS_ENDPOINT": "http://c:4318/v1/metrics"}, True),
        ({"OTEL_EXPORTER_OTLP_ENDPOINT": "http://c:4318", "OTEL_SDK_DISABLED": "true"}, False),
        ({"OTEL_EXPORTER_OTLP_ENDPOINT": "http://c:4318", "OTEL_METRICS_EXPORTER": "none"}, False),
    ],
)
def test_metrics_are_sent_only_if_a_receiver_is_configured(environ: dict[str, str], expected: bool) -> None:
    assert is_configured(environ) is expected


def test_without_a_receiver_no_library_is_loaded() -> None:
    with sending({}) as telemetry:
        telemetry.emit(COMPLETED, 1, {"pipeline": "p"})
