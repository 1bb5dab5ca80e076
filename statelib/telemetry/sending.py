"""Where the metrics of a process go that Airflow does not run: to an OpenTelemetry receiver, or nowhere."""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager

from statelib.telemetry.metrics import Harmless, NoTelemetry, Telemetry

_ENDPOINTS = ("OTEL_EXPORTER_OTLP_METRICS_ENDPOINT", "OTEL_EXPORTER_OTLP_ENDPOINT")
_PROTOCOLS = ("OTEL_EXPORTER_OTLP_METRICS_PROTOCOL", "OTEL_EXPORTER_OTLP_PROTOCOL")


def is_configured(environ: Mapping[str, str]) -> bool:
    """Whether an endpoint is given and nothing turns metrics off."""
    off = environ.get("OTEL_SDK_DISABLED", "").lower() == "true" or environ.get("OTEL_METRICS_EXPORTER") == "none"
    return not off and any(environ.get(name) for name in _ENDPOINTS)


@contextmanager
def sending(environ: Mapping[str, str]) -> Iterator[Telemetry]:
    """What ``OTEL_*`` asks for. All of it is sent when the block ends, however that ends; a receiver that is gone
    costs some seconds and a line in the log."""
    if not is_configured(environ):
        yield NoTelemetry()
        return
    from statelib.telemetry.otel import OpenTelemetry

    protocol = next((environ[name] for name in _PROTOCOLS if environ.get(name)), "http/protobuf")
    named = "OTEL_SERVICE_NAME" in environ or "service.name" in environ.get("OTEL_RESOURCE_ATTRIBUTES", "")
    telemetry = OpenTelemetry(grpc=protocol == "grpc", service_name=None if named else "statelib")
    try:
        yield Harmless(telemetry)
    finally:
        telemetry.close()
