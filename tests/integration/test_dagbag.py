"""The DAG files as Airflow reads them: in a process of its own, with an environment of its own."""

import json
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from demo.places import CHECKOUT, Places, Ports, environment

PIPELINES = CHECKOUT / "dags" / "pipelines"
NAMES = ("aircraft_activity", "carrier_streaks", "route_delays")

SCRIPT = """
import json, sys
from airflow.dag_processing.dagbag import DagBag
from airflow.serialization.serialized_objects import DagSerialization
bag = DagBag(sys.argv[1])
json.dump({
    "errors": bag.import_errors,
    "dags": {d.dag_id: {"file": d.fileloc, "max_active_runs": d.max_active_runs, "doc": d.doc_md, "catchup": d.catchup,
                        "timetable": type(d.timetable).__name__, "start": str(d.start_date), "end": str(d.end_date),
                        "tasks": {t.task_id: {"after": sorted(t.downstream_task_ids), "retries": t.retries,
                                              "delay_s": t.retry_delay.total_seconds(), "teardown": t.is_teardown,
                                              "args": getattr(t, "application_args", None),
                                              "application": getattr(t, "application", None),
                                              "outlets": [o.uri for o in t.outlets]} for t in d.tasks},
                        "params": {k: d.params.get_param(k).dump() for k in d.params},
                        "serialized": bool(DagSerialization.to_dict(d))} for d in bag.dags.values()},
    "loaded": sorted({"pyarrow", "pyspark", "great_expectations", "pandas", "rocksdict"} & set(sys.modules)),
}, open(sys.argv[2], "w"), default=str)
"""


def read_dags(work: Path, pipelines: Path) -> dict[str, Any]:
    """What Airflow's DagBag makes of ``dags/`` with the given pipeline files."""
    places = Places(work=work, pipelines=pipelines)
    places.make_directories()
    answer = work / "dags.json"
    command = [sys.executable, "-c", SCRIPT, str(CHECKOUT / "dags"), str(answer)]
    done = subprocess.run(command, env=environment(places, Ports()), capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[-3000:]
    return dict(json.loads(answer.read_text()))


@pytest.fixture(scope="module")
def shipped(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    return read_dags(tmp_path_factory.mktemp("shipped"), PIPELINES)


def chain(dag: dict[str, Any], first: str) -> list[str]:
    """The tasks from ``first`` on, each the one successor of the one before."""
    order = [first]
    while after := [t for t in dag["tasks"][order[-1]]["after"] if t != "abort"]:
        successors = [t for t in after if not any(t in dag["tasks"][other]["after"] for other in after)]
        assert len(successors) == 1
        order += successors
    return order


def test_every_pipeline_file_has_its_three_dags_and_none_fails_to_import(shipped: dict[str, Any]) -> None:
    assert shipped["errors"] == {}
    made = {f"{n}.{d}" for n in NAMES for d in ("checkpoint", "savepoint", "restore")}
    assert set(shipped["dags"]) == made | {"state_cleanup"}
    assert all(dag["serialized"] and dag["max_active_runs"] == 1 for dag in shipped["dags"].values())


def test_parsing_loads_no_engine(shipped: dict[str, Any]) -> None:
    assert shipped["loaded"] == []


@pytest.mark.parametrize("name", NAMES)
def test_checkpoint_runs_begin_snapshot_check_register_on_real_intervals(shipped: dict[str, Any], name: str) -> None:
    dag = shipped["dags"][f"{name}.checkpoint"]
    assert chain(dag, "begin") == ["begin", "snapshot", "check_completeness", "register"]
    assert dag["tasks"]["abort"]["teardown"]
    assert dag["tasks"]["register"]["after"] == ["abort"]
    assert dag["tasks"]["register"]["outlets"] == [f"statelib://{name}/state"]
    assert dag["timetable"] == "CronDataIntervalTimetable"
    assert (dag["start"][:10], dag["end"][:10], dag["catchup"]) == ("2013-01-01", "2014-01-01", False)
    assert (dag["tasks"]["snapshot"]["retries"], dag["tasks"]["snapshot"]["delay_s"]) == (2, 10.0)
    assert name in dag["doc"]


def test_spark_tasks_submit_the_jobs_for_the_pipeline_file(shipped: dict[str, Any]) -> None:
    snapshot = shipped["dags"]["route_delays.checkpoint"]["tasks"]["snapshot"]
    assert snapshot["application"] == str(CHECKOUT / "jobs" / "snapshot.py")
    assert snapshot["args"][:3] == ["--pipeline", str(PIPELINES / "route_delays.yaml"), "--checkpoint-id"]
    rehearse = shipped["dags"]["route_delays.restore"]["tasks"]["rehearse"]
    assert rehearse["application"] == str(CHECKOUT / "jobs" / "rehearse_restore.py")


def test_savepoint_takes_format_target_and_note(shipped: dict[str, Any]) -> None:
    dag = shipped["dags"]["aircraft_activity.savepoint"]
    assert chain(dag, "begin") == ["begin", "snapshot", "check_completeness", "register"]
    assert dag["tasks"]["register"]["outlets"] == []
    assert dag["timetable"] == "NullTimetable"
    assert set(dag["params"]) == {"format", "target", "note"}
    assert dag["params"]["format"]["schema"]["enum"] == ["canonical", "native"]
    assert dag["params"]["target"]["schema"]["type"] == ["null", "string"]


def test_restore_plans_rehearses_and_switches(shipped: dict[str, Any]) -> None:
    dag = shipped["dags"]["aircraft_activity.restore"]
    assert chain(dag, "plan") == ["plan", "rehearse", "switch"]
    assert set(dag["params"]) == {"checkpoint", "claim_mode", "parallelism"}
    assert dag["params"]["parallelism"]["schema"]["maximum"] == 128
    assert dag["params"]["claim_mode"]["schema"]["enum"] == ["NO_CLAIM", "CLAIM"]


def test_state_cleanup_runs_retention_gc_and_the_orphan_report_daily(shipped: dict[str, Any]) -> None:
    dag = shipped["dags"]["state_cleanup"]
    assert chain(dag, "retention") == ["retention", "gc", "orphans"]
    assert set(dag["tasks"]) == {"retention", "gc", "orphans"}
    assert (dag["catchup"], dag["max_active_runs"]) == (False, 1)
    assert dag["timetable"].startswith("Cron")
    assert set(dag["params"]) == {"dry_run", "grace_hours"}
    assert dag["params"]["dry_run"]["value"] is True
    assert dag["params"]["grace_hours"]["schema"]["minimum"] == 24
    assert "statelib gc --dry-run" in dag["doc"]


BREAKS = [
    ("agg: count", "agg: cuont", "cuont"),
    ("parallelism: 2\n", "parallelism: 200\n", "parallelism"),
    ("key: [tailnum]", "key: [tailnumber]", "tailnumber"),
    ("backend: rocksdb", "bakend: rocksdb", "bakend"),
    ("name: aircraft_activity", "name: [aircraft_activity", "not valid YAML"),
]


def test_a_broken_file_is_one_import_error_and_leaves_the_others_alone(tmp_path: Path) -> None:
    good = (PIPELINES / "aircraft_activity.yaml").read_text()
    directory = tmp_path / "pipelines"
    directory.mkdir()
    (directory / "good.yaml").write_text(good)
    for number, (right, wrong, _) in enumerate(BREAKS):
        assert right in good
        broken = good.replace("name: aircraft_activity", f"name: broken_{number}") if number < 4 else good
        (directory / f"broken_{number}.yaml").write_text(broken.replace(right, wrong))
    found = read_dags(tmp_path / "work", directory)
    assert found["dags"].pop("state_cleanup")["serialized"], "it needs no pipeline file"
    assert {dag_id.split(".")[0] for dag_id in found["dags"]} == {"aircraft_activity"}
    assert len(found["dags"]) == 3
    assert [Path(file).name for file in found["errors"]] == ["statelib_pipeline_errors.py"]
    (message,) = found["errors"].values()
    for number, (_, _, field) in enumerate(BREAKS):
        lines = [line for line in message.splitlines() if f"broken_{number}.yaml" in line]
        assert any(field in line for line in lines), f"{field} of broken_{number}.yaml is not in:\n{message}"
    files = {Path(dag["file"]).name for dag in found["dags"].values()}
    assert files == {"statelib_pipelines.py"}, "Airflow stops scheduling DAGs that share a file with an import error"


@pytest.mark.parametrize(
    ("text", "valid"),
    [("1", True), ("41", True), ("/srv/state/chk-4", True), ("file:///srv/state/chk-4", True)]
    + [("s3://bucket/chk-4", True), ("s3://key:secret@bucket/chk-4", False), ("s3://bucket/x?a=b", False)]
    + [(text, False) for text in ("", "0", "-1", "4 ", "latest", "../chk-4", "gs://bucket/chk-4", "/srv\n/x", "1;ls")],
)
def test_restore_accepts_an_id_or_an_absolute_path_only(shipped: dict[str, Any], text: str, valid: bool) -> None:
    pattern = shipped["dags"]["aircraft_activity.restore"]["params"]["checkpoint"]["schema"]["pattern"]
    assert bool(re.search(pattern, text)) is valid
