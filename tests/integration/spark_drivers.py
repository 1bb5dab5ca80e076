"""The processes of the drivers that spark-submit starts."""

import psutil

from demo.places import Places
from statelib.model.ids import PipelineName


def driver(places: Places, name: PipelineName, number: int) -> psutil.Process | None:
    """Return the JVM that spark-submit started for a checkpoint of these places, once it runs our Python code. Tests
    that run at the same time have drivers with the same pipeline name and the same number."""
    file = str(places.pipelines / f"{name}.yaml")
    for process in psutil.process_iter(["cmdline"]):
        line = process.info["cmdline"] or []
        if "java" in line[:1] or (line and line[0].endswith("/java")):
            arguments = " ".join(line)
            ours = "statelib_jobs/snapshot.py" in arguments and arguments.endswith(f"--checkpoint-id {number}")
            if ours and file in line and _children(process):
                return process
    return None


def _children(process: psutil.Process) -> list[psutil.Process]:
    try:
        return [c for c in process.children() if "python" in c.name()]
    except psutil.NoSuchProcess:
        return []
