"""The alerts of a group: those of its pipelines, each once."""

from datetime import timedelta
from pathlib import Path

from statelib_airflow.dags.dag_settings import DagSettings
from statelib_airflow.dags.group_dags import group_dag

from statelib.definition.pipeline import load_pipeline

PIPELINE = """\
name: {name}
group: hourly
source: {{path: "{{data}}/{{start}}-{{end}}", columns: {{shop: string}}}}
key: shop
states: {{visits: {{kind: value, fields: {{n: {{agg: count}}}}}}}}
backend: heap
parallelism: 1
alerts: {{{alerts}}}
"""
PAGER = "notify: [{notifier: pagers.Pager, arguments: {text: late}}]"


def test_a_run_of_a_group_is_late_after_the_deadlines_of_its_pipelines(tmp_path: Path) -> None:
    wanted = ("deadline: 6h", "deadline: 6h", f"deadline: 2h, {PAGER}", PAGER, "")
    pipelines = []
    for number, alerts in enumerate(wanted):
        path = tmp_path / f"p{number}.yaml"
        path.write_text(PIPELINE.format(name=f"p{number}", alerts=alerts))
        pipelines.append(load_pipeline(str(path)))
    dag = group_dag("hourly", pipelines, None, DagSettings())
    deadlines = [(alert.interval, alert.callback.kwargs.get("notifier")) for alert in dag.deadline or []]
    assert deadlines == [(timedelta(hours=6), None), (timedelta(hours=2), "pagers.Pager")]
    assert {alert.callback.kwargs["pipeline"] for alert in dag.deadline or []} == {"group hourly"}
    assert group_dag("hourly", pipelines[3:], None, DagSettings()).deadline in (None, [])
