"""Run by the Python of an environment with Airflow and the wheel, nothing else: open the page "State" in Airflow.

Arguments: the file to write the answers to as JSON, a user's name and password.
"""

import json
import sys
from pathlib import Path

from airflow.api_fastapi.app import create_app
from fastapi.testclient import TestClient

CHECKPOINTS = "/statelib/api/pipelines/orders/checkpoints"


def main(results: str, username: str, password: str) -> None:
    """Write what the page answers to a stranger and to a user who is signed in, as a browser is: by a cookie."""
    with TestClient(create_app(), base_url="http://127.0.0.1") as client:
        stranger = client.get(CHECKPOINTS)
        token = client.post("/auth/token", json={"username": username, "password": password}).json()["access_token"]
        signed_in = {"Cookie": f"_token={token}"}
        answer = client.get(CHECKPOINTS, headers=signed_in)
        answer.raise_for_status()
        page = client.get("/statelib/", headers=signed_in)
    seen = {
        "status for a stranger": stranger.status_code,
        "checkpoints in it": answer.json()["total"],
        "its HTML": "<html" in page.text,
    }
    Path(results).write_text(json.dumps(seen))


if __name__ == "__main__":
    main(*sys.argv[1:])
