"""The DAG ``state_verify``: it verifies the checkpoints of all pipelines once a week."""

from statelib_airflow import verify_dags

globals().update(verify_dags())
