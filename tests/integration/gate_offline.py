"""One run of the gate in a process of its own without network. It prints the connections that it tried, then the
verdict.

``python -m gate_offline ROOT``: every look-up of a name, and every connection that is not to this machine.
"""

import sys
from pathlib import Path

TRIED: list[str] = []
LOOPBACK = ("127.", "::1", "localhost", "/", "\0")


def listen() -> None:
    """Record every name look-up and connection, from before the first import."""

    def hook(event: str, arguments: tuple[object, ...]) -> None:
        if event in ("socket.getaddrinfo", "socket.gethostbyname", "socket.gethostbyaddr"):
            TRIED.append(f"{event} {arguments[0]}")
        elif event in ("socket.connect", "socket.sendto"):
            address = arguments[1]
            host = str(address[0] if isinstance(address, tuple) else address)
            if not host.startswith(LOOPBACK):
                TRIED.append(f"{event} {host}")

    sys.addaudithook(hook)


def main(root: str) -> None:
    listen()
    from statelib.flows.checkpoint.steps import check
    from tests.integration.gate_faults import FOURTH, NAME, fourth_day, three_days

    deployment = three_days(Path(root))
    fourth_day(deployment)
    report = check(deployment, deployment.pipeline(NAME), FOURTH)
    print(f"tried {TRIED}, passed {report.passed}, checks {len(report.results)}")


if __name__ == "__main__":
    main(*sys.argv[1:])
