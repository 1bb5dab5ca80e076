"""An API server of Airflow's for tests: its own app and middlewares, users with passwords, a new SQLite database.

Run as a program with a port and the file to write the routes of the page to.
"""

import json
import os
import sys
from pathlib import Path
from typing import Any

from airflow.api_fastapi.auth.managers.models.resource_details import DagDetails
from airflow.api_fastapi.auth.managers.simple.simple_auth_manager import SimpleAuthManager
from airflow.api_fastapi.auth.managers.simple.user import SimpleAuthManagerUser

OWN_DAGS = {"tom": "tours.", "gus": "sales.savepoint"}
"""How the ids of the DAGs begin that a user has rights on, by user; the others have rights on all."""


class FencedAuthManager(SimpleAuthManager):
    """Airflow's own auth manager, except that two of its users have rights on some DAGs only."""

    def is_authorized_dag(self, *, user: SimpleAuthManagerUser, details: DagDetails | None = None, **rest: Any) -> bool:
        own = OWN_DAGS.get(user.username, "")
        if details is not None and details.id is not None and not details.id.startswith(own):
            return False
        return super().is_authorized_dag(user=user, details=details, **rest)


def main(port: int, routes: Path) -> None:
    import uvicorn
    from airflow.utils.db import initdb
    from statelib_airflow.api import pages
    from statelib_airflow.api.app import page_app

    pages.DIST = Path(os.environ["TEST_PAGE_DIST"])
    initdb()
    results = [[path, sorted(methods)] for path, methods in routes_of(page_app())]
    routes.write_text(json.dumps(results))
    uvicorn.run("airflow.api_fastapi.main:app", host="127.0.0.1", port=port, log_level="warning")


def routes_of(app: Any) -> list[tuple[str, set[str]]]:
    """Return path and methods of every route of the app, mounted or not."""
    return [(route.path, route.methods) for route in app.routes]


if __name__ == "__main__":
    main(int(sys.argv[1]), Path(sys.argv[2]))
