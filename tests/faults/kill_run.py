"""One checkpoint of the pipeline tours in a process of its own: SIGKILL at its NUMBER-th write to checkpoint storage.

``python -m kill_run ROOT DAY NUMBER``."""

import os
import signal
import sys
from pathlib import Path

from tests.faults.endured_flow import FaultyDeployment, attempt


def main(root: str, number: str, at: str) -> None:
    def kill(operation: int) -> None:
        if operation == int(at):
            os.kill(os.getpid(), signal.SIGKILL)

    attempt(FaultyDeployment.at(Path(root), kill), int(number))


if __name__ == "__main__":
    main(*sys.argv[1:])
