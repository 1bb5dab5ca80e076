"""The DAG ``state_verify``: once a week, are the checkpoints of all pipelines what was written?"""

from statelib_airflow import verify_dags

globals().update(verify_dags())
