"""The DAG ``state_cleanup``: retention, garbage collection and the orphan report of all pipelines, once a day."""

from statelib_airflow import cleanup_dags

globals().update(cleanup_dags())
