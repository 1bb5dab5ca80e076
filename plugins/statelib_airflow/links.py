"""The link "Checkpoint" of a task. It leads to the checkpoint of the task's run on the page "State".

Airflow 3 computes the links of an operator in the worker when the task ends, and stores them as XComs
(``_link_<class>``). The link is therefore given to the task when the DAG is made, and only to statelib's tasks.
"""

from typing import TYPE_CHECKING, Any
from urllib.parse import quote, urlsplit

from airflow.providers.common.compat.sdk import conf
from airflow.sdk import BaseOperatorLink

from statelib_airflow.addresses import framed

if TYPE_CHECKING:
    from airflow.providers.common.compat.sdk import TaskInstanceKey
    from airflow.sdk import BaseOperator


class CheckpointLink(BaseOperatorLink):
    """The link, for ``operator_extra_links`` of an operator or of its class."""

    name = "Checkpoint"

    def get_link(self, operator: "BaseOperator", *, ti_key: "TaskInstanceKey") -> str:  # noqa: ARG002
        """Return a path in this Airflow. The page behind it looks up the checkpoint of the run."""
        path = urlsplit(conf.get("api", "base_url", fallback="")).path.rstrip("/")
        return framed(path, f"/run/{quote(ti_key.dag_id, safe='')}/{quote(ti_key.run_id, safe='')}")


def link_checkpoint(*tasks: Any) -> None:
    """Give operators, or what calling a ``@task`` returns, the link to their run's checkpoint."""
    for task in tasks:
        getattr(task, "operator", task).operator_extra_links = (CheckpointLink(),)
