"""An import error for each pipeline file that is not valid. This file has no DAG that the error could stop."""

from statelib_airflow import check_pipeline_dags

check_pipeline_dags()
