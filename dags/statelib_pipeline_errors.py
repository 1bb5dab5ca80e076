"""Makes each pipeline file that does not load an import error; this DAG file has no DAG that Airflow would stop."""

from statelib_airflow import check_pipeline_dags

check_pipeline_dags()
