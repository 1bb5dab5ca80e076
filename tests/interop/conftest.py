"""A real Flink, one for each test process. Tests that need it are skipped with the reason if it is not available."""

import pytest

from tests.interop.flink_kit import Flink, NoFlink, flink


@pytest.fixture(scope="session")
def flink_1() -> Flink:
    try:
        return flink("1.20.5")
    except NoFlink as reason:
        pytest.skip(f"no Flink 1.20.5: {reason}")


@pytest.fixture(scope="session")
def flink_2() -> Flink:
    try:
        return flink("2.3.0")
    except NoFlink as reason:
        pytest.skip(f"no Flink 2.3.0: {reason}")
