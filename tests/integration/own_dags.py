"""DAG files of a team beside those of this repository, in a real Airflow."""

import json
from collections.abc import Mapping
from pathlib import Path

from demo.places import Places


def with_own_dags(places: Places, directory: Path, files: Mapping[str, str]) -> dict[str, str]:
    """Write the files to a new directory. Return the settings with which Airflow reads them beside ``dags/``."""
    directory.mkdir()
    for name, text in files.items():
        (directory / name).write_text(text)
    folders = {"shipped": places.checkout / "dags", "own": directory}
    local = "airflow.dag_processing.bundles.local.LocalDagBundle"
    bundles = [{"name": name, "classpath": local, "kwargs": {"path": str(path)}} for name, path in folders.items()]
    return {"AIRFLOW__DAG_PROCESSOR__DAG_BUNDLE_CONFIG_LIST": json.dumps(bundles)}
