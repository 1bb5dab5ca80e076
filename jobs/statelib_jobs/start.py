"""Prepare the process of a job, when this module is imported. Each job imports it first.

The installed PySpark is put before the one in Spark's zip file. Garbage is collected more rarely than by default,
because the imports create many objects and hardly any garbage: looking for it took a fifth of a job's time."""

import gc

from statelib.spark.session.installed import prefer_installed

prefer_installed()
gc.set_threshold(100_000)
