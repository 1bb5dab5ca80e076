"""The wheel in an Airflow that has folders of its own named plugins, jobs and dags: page, connection type, three DAGs.

The environment is new and links to the pinned packages of the tests' one, so that it takes seconds and no network.
Other versions of Airflow and PySpark are tried by test_matrix_ends.py.
"""

from typing import Any

import pytest

from tests.integration.installed_wheel import build, install
from tools.matrix.story import CUSTOMERS, EXPECTED, Home, outcome

pytestmark = pytest.mark.timeout(1800)


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Home:
    root = tmp_path_factory.mktemp("theirs")
    return Home(root, install(build("wheel", root / "wheel"), root / "environment", ["all"]))


@pytest.fixture(scope="module")
def shown(home: Home) -> dict[str, Any]:
    """Return the final output of the Airflow with the wheel and of the command line."""
    return home.live()


def test_only_the_wheel_is_imported_and_the_teams_folders_are_used_as_before(home: Home, shown: dict[str, Any]) -> None:
    site = str(home.programs.parent / "lib")
    assert [file for file in (*shown["files"], shown["job"]) if not file.startswith(site)] == []
    assert shown["own"] == ["plugins jobs"]


def test_page_connection_type_checkpoint_with_a_retry_savepoint_and_restore_work(shown: dict[str, Any]) -> None:
    assert outcome(shown) == EXPECTED, shown["states"]


def test_a_dag_file_of_three_lines_sets_owner_and_connection(shown: dict[str, Any]) -> None:
    assert shown["owner"] == "finance"
    assert shown["states"]["orders.restore"]["tasks"]["switch"] == "success"
    assert len(shown["exported"]) == CUSTOMERS
