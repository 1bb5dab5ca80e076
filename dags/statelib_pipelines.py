"""The DAGs of the pipeline files in ``pipelines``, or where ``STATELIB_PIPELINES`` says."""

from statelib_airflow import pipeline_dags

globals().update(pipeline_dags())
