"""Sending metrics with OpenTelemetry. Its SDK reads the variables ``OTEL_*`` itself. Import this module only if an
endpoint is configured."""

import logging
from collections.abc import Callable

from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import MetricExporter, PeriodicExportingMetricReader
from opentelemetry.sdk.resources import Resource

from statelib.telemetry.metrics import Metric, MetricKind, Tags

log = logging.getLogger(__name__)

FLUSH_MS = 3_000
"""The longest time that a process waits for the receiver at its end."""


class OpenTelemetry:
    """A :class:`~statelib.telemetry.metrics.Telemetry` that sends values to an OpenTelemetry receiver.

    The instrument of a metric is created with its first value. ``grpc``: use gRPC instead of HTTP. ``service_name``:
    the name of the sending service; None: the SDK takes it from the environment. Call :meth:`close` at the end."""

    def __init__(self, *, grpc: bool, service_name: str | None) -> None:
        # The SDK logs a warning before each new try, and an error after the last one, which is enough.
        logging.getLogger("opentelemetry").setLevel(logging.ERROR)
        reader = PeriodicExportingMetricReader(_exporter(grpc), export_timeout_millis=FLUSH_MS)
        resource = Resource.create({} if service_name is None else {"service.name": service_name})
        self._provider = MeterProvider([reader], resource, shutdown_on_exit=False)
        self._meter = self._provider.get_meter("statelib")
        self._instruments: dict[str, Callable[[float, Tags], None]] = {}

    def emit(self, metric: Metric, value: float, tags: Tags) -> None:
        if metric.name not in self._instruments:
            self._instruments[metric.name] = self._instrument(metric)
        self._instruments[metric.name](value, tags)

    def _instrument(self, metric: Metric) -> Callable[[float, Tags], None]:
        described = (metric.name, metric.unit, metric.meaning)
        if metric.kind is MetricKind.COUNTER:
            return self._meter.create_counter(*described).add
        if metric.kind is MetricKind.GAUGE:
            return self._meter.create_gauge(*described).set
        return self._meter.create_histogram(*described).record

    def close(self) -> None:
        """Send all remaining values. If the receiver does not take them within :data:`FLUSH_MS`, they are lost and a
        warning is logged."""
        try:
            self._provider.shutdown(timeout_millis=FLUSH_MS)
        except Exception as error:  # noqa: BLE001 - the SDK raises plain exceptions, and the work is already done
            log.warning("metrics were not received: %s", error)


def _exporter(grpc: bool) -> MetricExporter:
    if grpc:
        from opentelemetry.exporter.otlp.proto.grpc.metric_exporter import OTLPMetricExporter as GrpcExporter

        return GrpcExporter(timeout=FLUSH_MS / 1000)
    from opentelemetry.exporter.otlp.proto.http.metric_exporter import OTLPMetricExporter as HttpExporter

    return HttpExporter(timeout=FLUSH_MS / 1000)
