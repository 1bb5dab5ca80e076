"""Metrics as OpenTelemetry sends them; the SDK reads ``OTEL_*`` itself. Imported where somebody listens only."""

import logging
from collections.abc import Callable

from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import MetricExporter, PeriodicExportingMetricReader
from opentelemetry.sdk.resources import Resource

from statelib.telemetry.metrics import Metric, MetricKind, Tags

log = logging.getLogger(__name__)

FLUSH_MS = 3_000
"""Longest that the end of a process waits for the receiver."""


class OpenTelemetry:
    """A :class:`~statelib.telemetry.metrics.Telemetry` with an instrument a metric, made when its first value comes.

    Values are kept until :meth:`close`. ``service_name``: unless ``OTEL_SERVICE_NAME`` says another."""

    def __init__(self, *, grpc: bool, service_name: str | None) -> None:
        # Its warnings announce tries to come; the error after the last one says it all.
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
        """Send everything, within :data:`FLUSH_MS`; what is not received by then is lost, and logged."""
        try:
            self._provider.shutdown(timeout_millis=FLUSH_MS)
        except Exception as error:  # noqa: BLE001 - the SDK raises bare ones; the work is done
            log.warning("metrics were not received: %s", error)


def _exporter(grpc: bool) -> MetricExporter:
    if grpc:
        from opentelemetry.exporter.otlp.proto.grpc.metric_exporter import OTLPMetricExporter as GrpcExporter

        return GrpcExporter(timeout=FLUSH_MS / 1000)
    from opentelemetry.exporter.otlp.proto.http.metric_exporter import OTLPMetricExporter as HttpExporter

    return HttpExporter(timeout=FLUSH_MS / 1000)
