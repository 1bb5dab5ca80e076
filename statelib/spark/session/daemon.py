"""The daemon process from which Spark forks its Python workers, in place of ``pyspark.daemon``. It is set with
``spark.python.daemon.module``.

The daemon imports statelib before workers are forked, so that no worker has to: in a small run the imports would take
longer than the events. The daemon must not print anything, because Spark reads its port from its output.
"""

import gc
import os
import runpy
from contextlib import suppress
from importlib import import_module

from statelib.spark.session.idle_daemon import end_when_idle, is_of_one_session
from statelib.spark.session.installed import prefer_installed
from statelib.spark.session.kept_memory import keep_freed_memory

_MODULES = (
    "pyspark.worker",
    "statelib.spark.snapshot.driver",
    "statelib.functions.declared",
    "statelib.functions.sessions.session_function",
    "statelib.functions.user_code.state_functions",
    "statelib.functions.windows",
)

if __name__ == "__main__":
    prefer_installed()
    keep_freed_memory(os.environ)
    gc.disable()  # the imports create no garbage
    for name in _MODULES:
        import_module(name)
    with suppress(ModuleNotFoundError):
        import_module("obstore.store")  # of the extra "objects"
    import_module("pyarrow").array([])  # PyArrow imports pandas, if it is installed, when it makes its first array
    gc.freeze()  # excludes the shared modules from the garbage collection of a worker after each task
    gc.enable()
    if is_of_one_session(os.environ):
        end_when_idle()
    runpy.run_module("pyspark.daemon", run_name="__main__", alter_sys=True)
