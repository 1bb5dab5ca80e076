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
OTHERS = {"state_cleanup", "state_verify", "example_own_dag"}

SCRIPT = """
import json, sys
HEAVY = {"pyarrow", "pyspark", "great_expectations", "pandas", "rocksdict", "obstore", "alembic"}
# Airflow itself loads SQLAlchemy, so the test checks that the room that loads it in statelib is not imported, nor any
# that computes.
ENGINES = tuple("statelib." + room for room in ("catalog", "quality", "spark", "storage", "backends", "flows"))
from airflow.dag_processing.dagbag import DagBag
from airflow.serialization.serialized_objects import DagSerialization
from statelib_airflow.runtime.steps import failure_of
bag = DagBag(sys.argv[1])
json.dump({
    "errors": bag.import_errors,
    "dags": {d.dag_id: {"file": d.fileloc, "max_active_runs": d.max_active_runs, "doc": d.doc_md, "catchup": d.catchup,
                        "timetable": type(d.timetable).__name__, "start": str(d.start_date), "end": str(d.end_date),
                        "tasks": {t.task_id: {"after": sorted(t.downstream_task_ids), "retries": t.retries,
                                              "delay_s": t.retry_delay.total_seconds(), "teardown": t.is_teardown,
                                              "rule": t.trigger_rule,
                                              "longest_s": t.execution_timeout and t.execution_timeout.total_seconds(),
                                              "args": getattr(t, "application_args", None),
                                              "application": getattr(t, "application", None),
                                              "outlets": [o.uri for o in t.outlets]} for t in d.tasks},
                        "groups": {g: sorted(t.children) for g, t in d.task_group.get_task_group_dict().items() if g},
                        "params": {k: d.params.get_param(k).dump() for k in d.params},
                        "deadlines": [[a.interval.total_seconds(), a.callback.path, a.callback.kwargs]
                                      for a in d.deadline or []],
                        "alerts": [[n.pipeline, n.notifier, n.arguments]
                                 for n in d.default_args.get("on_failure_callback", [])],
                        "serialized": bool(DagSerialization.to_dict(d))} for d in bag.dags.values()},
    "failures": {" ".join(t): failure_of(list(t)) for t in
                 [(), ("snapshot",), ("check_completeness",), ("register",), ("register", "snapshot")]},
    "loaded": sorted(m for m in sys.modules if m.partition(".")[0] in HEAVY or m.startswith(ENGINES)),
}, open(sys.argv[2], "w"), default=str)
"""


def read_dags(work: Path, pipelines: Path) -> dict[str, Any]:
    """Return the content of Airflow's DagBag of ``dags/``, with the given pipeline files."""
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
    """Return the tasks from ``first`` on, each the only successor of the one before."""
    order = [first]
    while after := [t for t in dag["tasks"][order[-1]]["after"] if t != "abort"]:
        successors = [t for t in after if not any(t in dag["tasks"][other]["after"] for other in after)]
        assert len(successors) == 1
        order += successors
    return order


def test_every_pipeline_file_has_its_four_dags_and_none_fails_to_import(shipped: dict[str, Any]) -> None:
    assert shipped["errors"] == {}
    made = {f"{n}.{d}" for n in NAMES for d in ("checkpoint", "savepoint", "restore", "dispose")}
    assert set(shipped["dags"]) == made | OTHERS
    assert all(dag["serialized"] and dag["max_active_runs"] == 1 for dag in shipped["dags"].values())
    assert all(dag["doc"] for dag in shipped["dags"].values())


def test_airflows_timeout_of_a_snapshot_is_longer_than_its_own_deadline(shipped: dict[str, Any]) -> None:
    for name in NAMES:
        for dag in ("checkpoint", "savepoint"):
            tasks = shipped["dags"][f"{name}.{dag}"]["tasks"]
            assert tasks["snapshot"]["longest_s"] == 21_600 + 300
            assert tasks["register"]["longest_s"] is None, "a commit is never cut off"


def test_the_failure_reason_of_a_run_follows_from_the_failed_tasks(shipped: dict[str, Any]) -> None:
    assert shipped["failures"] == {
        "": "CHECKPOINT_COORDINATOR_SHUTDOWN",
        "snapshot": "TASK_FAILURE",
        "check_completeness": "FINALIZE_CHECKPOINT_FAILURE",
        "register": "FINALIZE_CHECKPOINT_FAILURE",
        "register snapshot": "TASK_FAILURE",
    }


def test_parsing_loads_no_engine(shipped: dict[str, Any]) -> None:
    assert shipped["loaded"] == []


@pytest.mark.parametrize("name", NAMES)
def test_the_checkpoint_dag_has_its_tasks_in_order_and_a_schedule(shipped: dict[str, Any], name: str) -> None:
    dag = shipped["dags"][f"{name}.checkpoint"]
    assert chain(dag, "begin") == ["begin", "snapshot", "check_completeness", "register"]
    assert dag["groups"] == {"checkpoint": ["check_completeness", "register", "snapshot"]}
    assert dag["tasks"]["abort"]["teardown"]
    assert dag["tasks"]["register"]["after"] == ["abort"]
    assert dag["tasks"]["register"]["outlets"] == [f"statelib://{name}/state"]
    assert dag["timetable"] == "CronDataIntervalTimetable"
    assert (dag["start"][:10], dag["end"][:10], dag["catchup"]) == ("2013-01-01", "2014-01-01", False)
    assert (dag["tasks"]["snapshot"]["retries"], dag["tasks"]["snapshot"]["delay_s"]) == (2, 10.0)
    assert name in dag["doc"]


def test_spark_tasks_submit_the_jobs_with_the_pipeline_file(shipped: dict[str, Any]) -> None:
    snapshot = shipped["dags"]["route_delays.checkpoint"]["tasks"]["snapshot"]
    assert snapshot["application"] == str(CHECKOUT / "jobs" / "statelib_jobs" / "snapshot.py")
    assert snapshot["args"][:3] == ["--pipeline", str(PIPELINES / "route_delays.yaml"), "--checkpoint-id"]
    rehearse = shipped["dags"]["route_delays.restore"]["tasks"]["rehearse"]
    assert rehearse["application"] == str(CHECKOUT / "jobs" / "statelib_jobs" / "rehearse_restore.py")


def test_the_savepoint_dag_has_parameters_for_format_target_note_and_stop(shipped: dict[str, Any]) -> None:
    dag = shipped["dags"]["aircraft_activity.savepoint"]
    assert chain(dag, "begin") == ["begin", "snapshot", "check_completeness", "register"]
    assert dag["groups"] == {"savepoint": ["check_completeness", "register", "snapshot"]}
    assert dag["tasks"]["register"]["outlets"] == []
    assert dag["timetable"] == "NullTimetable"
    assert set(dag["params"]) == {"format", "target", "note", "stop"}
    assert dag["params"]["stop"]["value"] == "no"
    assert dag["params"]["stop"]["schema"]["enum"] == ["no", "suspend", "drain"]
    assert dag["params"]["format"]["schema"]["enum"] == ["canonical", "native"]
    assert dag["params"]["target"]["schema"]["type"] == ["null", "string"]


def test_the_restore_dag_plans_awaits_approval_rehearses_switches_and_replays(shipped: dict[str, Any]) -> None:
    dag = shipped["dags"]["aircraft_activity.restore"]
    assert chain(dag, "plan") == ["plan", "approve", "rehearse", "switch", "replay"]
    assert dag["groups"] == {"decision": ["approve", "plan"], "restore": ["rehearse", "switch"]}
    required = {"checkpoint", "claim_mode", "parallelism", "allow_non_restored_state"}
    assert set(dag["params"]) == required | {"approval", "replay"}
    assert dag["tasks"]["approve"]["retries"] == 0, "nobody is asked twice"
    assert dag["tasks"]["rehearse"]["rule"] == "none_failed", "an approval that nobody asked for is skipped"
    assert {name: dag["params"][name]["value"] for name in ("approval", "replay")} == {
        "approval": False,
        "replay": False,
    }
    assert dag["params"]["parallelism"]["schema"]["maximum"] == 128
    assert dag["params"]["claim_mode"]["schema"]["enum"] == ["NO_CLAIM", "CLAIM"]


def test_the_cleanup_dag_runs_retention_gc_and_the_orphan_report_daily(shipped: dict[str, Any]) -> None:
    dag = shipped["dags"]["state_cleanup"]
    assert chain(dag, "retention")[:3] == ["retention", "gc", "orphans"]
    assert set(dag["tasks"]) == {"retention", "gc", "orphans", "troubles"}
    assert (dag["catchup"], dag["max_active_runs"]) == (False, 1)
    assert dag["timetable"].startswith("Cron")
    assert set(dag["params"]) == {"dry_run", "grace_hours"}
    assert dag["params"]["dry_run"]["value"] is True
    assert dag["params"]["grace_hours"]["schema"]["minimum"] == 24
    assert "statelib gc --dry-run" in dag["doc"]


def test_the_dispose_dag_deletes_only_after_a_preview_and_a_confirmation(shipped: dict[str, Any]) -> None:
    dag = shipped["dags"]["aircraft_activity.dispose"]
    assert chain(dag, "preview") == ["preview", "dispose"]
    assert dag["params"]["confirm"]["value"] is False
    assert re.search(dag["params"]["savepoint"]["schema"]["pattern"], "7")


def test_the_verify_dag_has_a_task_for_each_pipeline(shipped: dict[str, Any]) -> None:
    dag = shipped["dags"]["state_verify"]
    assert chain(dag, "pipelines") == ["pipelines", "verify"]
    assert dag["timetable"].startswith("Cron")
    subset = dag["params"]["read_data_subset"]
    assert (subset["value"], dag["params"]["pipeline"]["value"]) == ("10%", None)
    assert dag["params"]["pipeline"]["schema"]["examples"] == list(NAMES)
    for text, valid in (
        [(t, True) for t in subset["schema"]["examples"]]
        + [("0.5%", True), ("99.9%", True)]
        + [(t, False) for t in ("10", "0%", "0.0%", "101%", "100.5%", "0/3", "1/0", "5 %", "")]
    ):
        assert bool(re.search(subset["schema"]["pattern"], text)) is valid, text


def test_a_team_can_write_its_own_dag_with_operators(shipped: dict[str, Any]) -> None:
    dag = shipped["dags"]["example_own_dag"]
    assert chain(dag, "checkpoint") == ["checkpoint", "on_sundays", "savepoint"]
    assert dag["tasks"]["checkpoint"]["outlets"] == ["statelib://carrier_streaks/state"]
    assert dag["tasks"]["savepoint"]["outlets"] == [], "a savepoint changes no state"
    assert dag["tasks"]["checkpoint"]["application"] == str(CHECKOUT / "jobs" / "statelib_jobs" / "snapshot.py")


def test_fifty_pipelines_with_notifiers_and_deadlines_are_parsed_without_any_engine(tmp_path: Path) -> None:
    """Parsing loads few modules and opens few files, however many pipelines there are. They are counted."""
    directory = tmp_path / "pipelines"
    directory.mkdir()
    good = (PIPELINES / "carrier_streaks.yaml").read_text()
    for number in range(50):
        text = good.replace("name: carrier_streaks", f"name: streaks_{number}")
        if number == 9:
            text = text.replace("source:\n", "source:\n  ready: {marker: _SUCCESS}\n")
        (directory / f"{number}.yaml").write_text(text + (ALERTS if number == 7 else ""))
    dags = read_dags(tmp_path / "work", directory)
    assert (dags["errors"], dags["loaded"]) == ({}, [])
    assert len(dags["dags"]) == 4 * 50 + len(OTHERS)
    mail = ["streaks_7", "airflow.providers.smtp.notifications.smtp.SmtpNotifier", {"to": "a@b.c"}]
    alerted = dags["dags"]["streaks_7.checkpoint"]
    assert alerted["alerts"] == [mail]
    (deadline,) = alerted["deadlines"]
    assert deadline[0] == 6 * 3600
    assert deadline[1] == "statelib_airflow.notifications.StatelibNotifier"
    assert deadline[2] == dict(zip(("pipeline", "notifier", "arguments"), mail, strict=True))
    assert dags["dags"]["streaks_8.checkpoint"]["alerts"] == [["streaks_8", None, {}]], "the log, if nobody else"
    assert dags["dags"]["streaks_8.checkpoint"]["deadlines"] == []
    waiting = [name for name, dag in dags["dags"].items() if "wait_for_source" in dag["tasks"]]
    assert waiting == ["streaks_9.checkpoint"], "only where the file has source.ready, and only before a checkpoint"
    assert chain(dags["dags"]["streaks_9.checkpoint"], "wait_for_source")[:3] == [
        "wait_for_source",
        "begin",
        "snapshot",
    ]


ALERTS = """
alerts:
  deadline: 6h
  notify:
    - {notifier: airflow.providers.smtp.notifications.smtp.SmtpNotifier, arguments: {to: a@b.c}}
"""

BREAKS = [
    ("agg: count", "agg: cuont", "cuont"),
    ("parallelism: 2\n", "parallelism: 200\n", "parallelism"),
    ("key: [tailnum]", "key: [tailnumber]", "tailnumber"),
    ("backend: rocksdb", "bakend: rocksdb", "bakend"),
    ("name: aircraft_activity", "name: [aircraft_activity", "not valid YAML"),
]


def test_a_broken_file_is_one_import_error_and_does_not_affect_the_others(tmp_path: Path) -> None:
    good = (PIPELINES / "aircraft_activity.yaml").read_text()
    directory = tmp_path / "pipelines"
    directory.mkdir()
    (directory / "good.yaml").write_text(good)
    for number, (right, wrong, _) in enumerate(BREAKS):
        assert right in good
        broken = good.replace("name: aircraft_activity", f"name: broken_{number}") if number < 4 else good
        (directory / f"broken_{number}.yaml").write_text(broken.replace(right, wrong))
    dags = read_dags(tmp_path / "work", directory)
    assert all(dags["dags"].pop(name)["serialized"] for name in OTHERS), "they need no pipeline file"
    assert {dag_id.split(".")[0] for dag_id in dags["dags"]} == {"aircraft_activity"}
    assert len(dags["dags"]) == 4
    assert [Path(file).name for file in dags["errors"]] == ["statelib_pipeline_errors.py"]
    (message,) = dags["errors"].values()
    for number, (_, _, field) in enumerate(BREAKS):
        lines = [line for line in message.splitlines() if f"broken_{number}.yaml" in line]
        assert any(field in line for line in lines), f"{field} of broken_{number}.yaml is not in:\n{message}"
    files = {Path(dag["file"]).name for dag in dags["dags"].values()}
    assert files == {"statelib_pipelines.py"}, "Airflow stops scheduling DAGs that share a file with an import error"


@pytest.mark.parametrize(
    ("text", "valid"),
    [("1", True), ("41", True), ("/srv/state/chk-4", True), ("file:///srv/state/chk-4", True)]
    + [("s3://bucket/chk-4", True), ("s3://key:secret@bucket/chk-4", False), ("s3://bucket/x?a=b", False)]
    + [("gs://bucket/chk-4", True), ("abfss://box@account1.dfs.core.windows.net/x", True), ("az://key@box/x", False)]
    + [(text, False) for text in ("", "0", "-1", "4 ", "latest", "../chk-4", "hdfs://name/chk-4", "/srv\n/x", "1;ls")],
)
def test_the_restore_dag_accepts_only_an_id_or_an_absolute_path(
    shipped: dict[str, Any], text: str, valid: bool
) -> None:
    pattern = shipped["dags"]["aircraft_activity.restore"]["params"]["checkpoint"]["schema"]["pattern"]
    assert bool(re.search(pattern, text)) is valid
