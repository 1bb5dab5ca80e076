"""The end of a daemon process for Python workers that nothing uses any more.

Spark starts a daemon for each session of Spark Connect, and ends none of them before the executor ends. If a daemon has
ended, Spark starts another one when the session needs it."""

import os
import signal
import time
from collections.abc import Mapping

IDLE_S = 300.0
"""The seconds without a worker after which a daemon ends."""


def is_of_one_session(environ: Mapping[str, str]) -> bool:
    """Return whether Spark started the daemon with this environment for one session of Spark Connect."""
    return environ.get("SPARK_JOB_ARTIFACT_UUID", "default") != "default"


def end_when_idle(idle_s: float = IDLE_S) -> None:
    """End this process as soon as it has had no child process for ``idle_s`` seconds. Child processes are not
    affected."""
    used_at = time.monotonic()

    def note_use() -> None:
        nonlocal used_at
        used_at = time.monotonic()

    def look(_signal: int, _frame: object) -> None:
        if _has_children():
            note_use()
        elif time.monotonic() - used_at >= idle_s:
            os._exit(0)

    os.register_at_fork(after_in_parent=note_use)
    signal.signal(signal.SIGALRM, look)
    signal.setitimer(signal.ITIMER_REAL, idle_s / 10, idle_s / 10)


def _has_children() -> bool:
    try:
        os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOHANG | os.WNOWAIT)
    except ChildProcessError:
        return False
    return True
