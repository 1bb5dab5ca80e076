"""Makes every pipeline file that does not load an import error, without touching the DAGs of the others.

Airflow stops scheduling all DAGs of a file with an import error; this file has no DAG to lose.
"""

from airflow.sdk.exceptions import AirflowException
from statelib_airflow.places import pipelines_directory

from statelib.definition.pipeline import load_pipelines


class BrokenPipelineError(AirflowException):
    """Names each pipeline file that does not load, the field and what is wrong with it."""


_errors = load_pipelines(pipelines_directory(__file__))[1]
if _errors:
    raise BrokenPipelineError("\n".join(error.message for error in _errors))
