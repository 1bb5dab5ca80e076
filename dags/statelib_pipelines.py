"""The DAGs of the pipeline files in ``pipelines``, or in the directory that ``STATELIB_PIPELINES`` names."""

from statelib_airflow import pipeline_dags

globals().update(pipeline_dags())
