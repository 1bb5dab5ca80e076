"""The entry of statelib in Airflow's list of providers: its connection type and its extra link."""

from typing import Any


def get_provider_info() -> dict[str, Any]:
    """Return the provider's description. Airflow calls this while it starts, so it imports nothing of Airflow."""
    return {
        "package-name": "statelib",
        "name": "statelib",
        "description": "Keyed state for batch pipelines: checkpoints, savepoints and restores as tasks.",
        "connection-types": [{"connection-type": "statelib", "hook-class-name": "statelib_airflow.hooks.StatelibHook"}],
        "extra-links": ["statelib_airflow.links.CheckpointLink"],
    }
