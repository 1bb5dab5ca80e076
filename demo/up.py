"""``make up``: Airflow with its UI on 127.0.0.1, on the state of the demonstration, until Ctrl-C."""

import argparse
import signal
import socket
import sys
import time

from demo.airflow_process import COMPONENTS, AirflowStartError, airflow, exclusive, free_ports, migrate
from demo.places import Places, Ports
from demo.prepare import raw_flights, write_days


def main() -> int:
    """Run Airflow until Ctrl-C, SIGTERM or SIGHUP, and return the exit status."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--port", type=int, default=8080, help="of the UI, on 127.0.0.1")
    port = parser.parse_args().port
    for number in (signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, lambda *_: sys.exit(0))
    places = Places()
    try:
        with exclusive(places):
            _check_free(port)
            print("Starting Airflow ...", flush=True)
            migrate(places)
            if not (places.data / "flights").exists():
                write_days(raw_flights(), places.data / "flights")
            _serve(places, port)
    except AirflowStartError as error:
        print(error, file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        pass
    print("Stopped.")
    return 0


def _serve(places: Places, port: int) -> None:
    """Run Airflow until a signal ends this process. Raises AirflowStartError if a component ends for good."""
    logs = free_ports()
    ports = Ports(port, logs.worker_logs, logs.trigger_logs)
    with airflow(places, ports, (*COMPONENTS, "triggerer")) as running:
        print(f"Airflow: {running.url}   (no login; Ctrl-C stops everything)", flush=True)
        while True:
            time.sleep(1)
            running.client.check()


def _check_free(port: int) -> None:
    """Raise AirflowStartError if a process listens on the port."""
    with socket.socket() as probe:
        if probe.connect_ex(("127.0.0.1", port)) == 0:
            raise AirflowStartError(f"port {port} is taken: `make up PORT=8081` uses another")


if __name__ == "__main__":
    sys.exit(main())
