"""What Spark starts instead of ``pyspark.daemon`` (``spark.python.daemon.module``), to fork Python workers from it.

What it has imported, none of them imports again: a worker of a small run otherwise spends more on that than on its
events. Prints nothing, because Spark reads the daemon's port from its output.
"""

import gc
import runpy
from contextlib import suppress
from importlib import import_module

from statelib.spark.session.installed import prefer_installed

if __name__ == "__main__":
    prefer_installed()
    for name in ("pyspark.worker", "statelib.spark.snapshot.driver"):
        import_module(name)
    with suppress(ModuleNotFoundError):
        import_module("obstore.store")  # of the extra "objects"
    gc.freeze()  # a worker collects after each task: what it shares with the others is not to be looked at
    runpy.run_module("pyspark.daemon", run_name="__main__", alter_sys=True)
