"""The trigger forms of the DAGs that people start by hand. Airflow checks them before it makes a run."""

from collections.abc import Sequence

from airflow.sdk import Param

BUCKET = r"((s3|gs|az)://[a-z0-9._-]{3,222}|abfss://[a-z0-9-]{3,63}@[a-z0-9]{3,24}\.dfs\.core\.windows\.net)"
PLACE = rf"((file:)?/[^\x00-\x1f]+|{BUCKET}(/[^\x00-\x1f?#]*)?)"
CHECKPOINT_ID_OR_PATH = rf"^([1-9][0-9]{{0,17}}|{PLACE})$"
ABSOLUTE_PATH = rf"^{PLACE}$"
CHECKPOINT_ID = r"^[1-9][0-9]{0,17}$"
MOMENT = r"^[0-9]{4}-[0-9]{2}-[0-9]{2}(T[0-9:.]{4,15}(Z|[+-][0-9:]{2,5})?)?$"
SUBSET = r"^((?!0+(\.0+)?%)([0-9]{1,2}(\.[0-9]{1,6})?|100)%|[1-9][0-9]{0,5}/[1-9][0-9]{0,5})$"
"""The pattern of the values of ``statelib verify --read-data-subset``."""


def interval_form() -> dict[str, Param]:
    """Return the form of a checkpoint DAG that no timetable gives an interval."""
    return {
        name: Param(
            None,
            type=["null", "string"],
            pattern=MOMENT,
            examples=[f"2026-01-{day}", f"2026-01-{day}T06:00"],
            title=f"{name.capitalize()} of the interval",
            description=f"{name} of the interval to apply, in the schedule's time zone unless it has an offset; "
            "empty in runs that updates of an asset start",
        )
        for name, day in (("start", 30), ("end", 31))
    }


def savepoint_form() -> dict[str, Param]:
    """Return the form of a savepoint DAG."""
    labels = {"canonical": "canonical: every backend and Flink read it", "native": "native: the backend's own form"}
    stops = {
        "no": "no: the pipeline goes on",
        "suspend": "suspend: timers and windows stay as they are, for whoever restores the savepoint",
        "drain": "drain: event-time timers fire and windows close first, because no events will follow",
    }
    return {
        "format": Param(
            "canonical",
            type="string",
            enum=list(labels),
            values_display=labels,
            title="Format",
            description="canonical: readable by every backend and by Flink; native: the backend's own form",
        ),
        "target": Param(
            None,
            type=["null", "string"],
            pattern=ABSOLUTE_PATH,
            examples=["/srv/savepoints", "s3://bucket/savepoints"],
            title="Target directory",
            description="absolute path, file:, s3:, gs:, az: or abfss: URI; empty: the storage's savepoints directory",
        ),
        "note": Param(
            "",
            type=["null", "string"],
            maxLength=500,
            examples=["before release 2.4", "before the parallelism is doubled"],
            title="Note",
            description="why it was taken",
        ),
        "stop": Param(
            "no",
            type="string",
            enum=list(stops),
            values_display=stops,
            title="Stop the pipeline",
            description="with this savepoint the pipeline begins no more checkpoints, until it is resumed or restored",
        ),
    }


def restore_form(max_parallelism: int) -> dict[str, Param]:
    """Return the form of a restore DAG."""
    modes = {"NO_CLAIM": "NO_CLAIM: its files stay its owner's", "CLAIM": "CLAIM: statelib may delete its files"}
    return {
        "checkpoint": Param(
            type="string",
            pattern=CHECKPOINT_ID_OR_PATH,
            examples=[
                "1",
                "/srv/state/aircraft_activity/chk-41",
                "s3://bucket/savepoints/savepoint-aircraft_activity-7",
            ],
            title="Checkpoint",
            description="id of a completed checkpoint, or absolute path or URI of a checkpoint or savepoint",
        ),
        "claim_mode": Param(
            "NO_CLAIM",
            type="string",
            enum=list(modes),
            values_display=modes,
            title="Claim mode",
            description="CLAIM makes statelib the owner of the restored files",
        ),
        "parallelism": Param(
            None,
            type=["null", "integer"],
            minimum=1,
            maximum=max_parallelism,
            title="Parallelism",
            description="empty: as now",
        ),
        "allow_non_restored_state": Param(
            False,
            type="boolean",
            title="Allow non-restored state",
            description="leave out states that the pipeline no longer has; the pipeline file must allow it too",
        ),
        "approval": Param(
            False,
            type="boolean",
            title="Ask before the switch",
            description="show the plan, and wait up to 23 hours until somebody approves it",
        ),
        "replay": Param(
            False,
            type="boolean",
            title="Replay",
            description="afterwards run the intervals after the restored one again, oldest first",
        ),
    }


def mend_form() -> dict[str, Param]:
    """Return the form of a mend DAG."""
    return {
        "interval": Param(
            type="string",
            pattern=MOMENT,
            examples=["2026-01-31", "2026-01-31T06:00"],
            title="Interval",
            description="start of the interval to correct, in the schedule's time zone unless it has an offset",
        ),
        "approval": Param(
            False,
            type="boolean",
            title="Ask before it begins",
            description="show the plan and what would differ, and wait up to 23 hours until somebody approves it",
        ),
    }


def dispose_form() -> dict[str, Param]:
    """Return the form of a dispose DAG."""
    return {
        "savepoint": Param(
            type="string", pattern=CHECKPOINT_ID, examples=["7"], title="Savepoint", description="id of a savepoint"
        ),
        "confirm": Param(
            False,
            type="boolean",
            title="Yes, delete it for good",
            description="off: only list what would be deleted",
        ),
    }


def cleanup_form() -> dict[str, Param]:
    """Return the form of the DAG ``state_cleanup``."""
    return {
        "dry_run": Param(
            True, type="boolean", title="Only report orphans", description="off: delete the orphans that are found"
        ),
        "grace_hours": Param(
            168,
            type="integer",
            minimum=24,
            title="Grace period in hours",
            description="minimum age of files that the catalog has no record of",
        ),
    }


def verify_form(pipelines: Sequence[str]) -> dict[str, Param]:
    """Return the form of the DAG ``state_verify``. ``pipelines``: the names that it suggests; others may be entered."""
    return {
        "read_data_subset": Param(
            "10%",
            type="string",
            pattern=SUBSET,
            examples=["5%", "10%", "25%", "100%", "1/20"],
            title="Files to read",
            description="5%: others in each run; 1/20: one part of twenty; 100%: all, and every entry is counted",
        ),
        "pipeline": Param(
            None,
            type=["null", "string"],
            minLength=1,
            examples=list(pipelines),
            title="Pipeline",
            description="empty: all",
        ),
    }
