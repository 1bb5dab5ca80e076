"""One day of the pipeline tours in a process of its own, which can be made to die on the way.

``python -m one_run ROOT DAY [EVENT NUMBER]``: SIGKILL just before the NUMBER-th, from 0, audit EVENT that touches a
local copy.
"""

import os
import signal
import sys
from pathlib import Path

from tests.integration.test_incremental_flow import events
from tests.support.worlds import checkpoint_of, new_deployment


def die_at(event: str, number: int) -> None:
    seen = 0

    def hook(name: str, arguments: tuple[object, ...]) -> None:
        nonlocal seen
        if name == event and any("local-state" in str(a) for a in arguments):
            if seen == number:
                os.kill(os.getpid(), signal.SIGKILL)
            seen += 1

    sys.addaudithook(hook)


def main(root: str, number: str, *death: str) -> None:
    deployment = new_deployment(Path(root), Path(root), Path(root) / "pipelines")
    if death:
        die_at(death[0], int(death[1]))
    checkpoint_of(deployment, "tours", int(number), events(int(number)))


if __name__ == "__main__":
    main(*sys.argv[1:])
