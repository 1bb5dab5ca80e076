"""The receiver of metrics of a process that Airflow does not run: an OpenTelemetry receiver, or none."""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager

from statelib.telemetry.metrics import Harmless, NoTelemetry, Telemetry

_ENDPOINTS = ("OTEL_EXPORTER_OTLP_METRICS_ENDPOINT", "OTEL_EXPORTER_OTLP_ENDPOINT")
_PROTOCOLS = ("OTEL_EXPORTER_OTLP_METRICS_PROTOCOL", "OTEL_EXPORTER_OTLP_PROTOCOL")


def is_configured(environ: Mapping[str, str]) -> bool:
    """Return whether the environment names an endpoint for metrics and does not switch metrics off."""
    off = environ.get("OTEL_SDK_DISABLED", "").lower() == "true" or environ.get("OTEL_METRICS_EXPORTER") == "none"
    return not off and any(environ.get(name) for name in _ENDPOINTS)


@contextmanager
def sending(environ: Mapping[str, str]) -> Iterator[Telemetry]:
    """Return a :class:`~statelib.telemetry.metrics.Telemetry` according to the variables ``OTEL_*`` in ``environ``.

    All values are sent when the block ends, with or without an error. A receiver that does not answer costs some
    seconds and a warning in the log."""
    if not is_configured(environ):
        yield NoTelemetry()
        return
    from statelib.telemetry.otel import OpenTelemetry

    protocol = next((environ[name] for name in _PROTOCOLS if environ.get(name)), "http/protobuf")
    has_name = "OTEL_SERVICE_NAME" in environ or "service.name" in environ.get("OTEL_RESOURCE_ATTRIBUTES", "")
    telemetry = OpenTelemetry(grpc=protocol == "grpc", service_name=None if has_name else "statelib")
    try:
        yield Harmless(telemetry)
    finally:
        telemetry.close()
