"""The files in docker/ are consistent with each other and with the code. No container engine is needed."""

import json
import os
import re
import subprocess
import sys
import zipfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyspark
import pytest
import yaml

from demo.topology import cluster_settings
from statelib.flows import wiring
from statelib.flows.wiring import VARIABLES
from tests.architecture.repository import ROOT
from tests.support.postgresql_server import Listen
from tests.support.s3_endpoint import S3Endpoint

DOCKER = ROOT / "docker"
COMPOSE = (DOCKER / "compose.yaml").read_text()
SERVICES: dict[str, dict[str, Any]] = yaml.safe_load(COMPOSE)["services"]
LINES = (DOCKER / ".env.example").read_text().splitlines()
EXAMPLE = dict(line.split("=", 1) for line in LINES if re.match(r"\w+=", line))
PINNED = re.compile(r"^[\w./-]+:v?[\d.]+[\w.-]*@sha256:[0-9a-f]{64}$")
SECRET = re.compile(r"SECRET|PASSWORD|FERNET|ACCESS_KEY|SQL_ALCHEMY_CONN|STATELIB_CATALOG")
REFERENCE = re.compile(r"(?<!\$)\$\{(\w+):\?see \.env\.example\}")
BUILT = SERVICES["prepared-volumes"]
ONCE = {name for name, service in SERVICES.items() if service["restart"] == "no"}
AIRFLOW = {name for name in SERVICES if name.startswith("airflow-") or name == "init"}
WORKERS = {name for name in SERVICES if name.startswith("spark-worker-")}


def variables(name: str) -> dict[str, str]:
    return SERVICES[name].get("environment", {})


def test_the_services_form_a_cluster() -> None:
    assert {"postgres", "s3", "spark-master", "init"} <= set(SERVICES)
    assert {f"airflow-{part}" for part in ("api-server", "scheduler", "dag-processor", "triggerer")} <= AIRFLOW
    assert len(WORKERS) == 2


@pytest.mark.parametrize("name", SERVICES)
def test_an_image_is_pinned_or_built_from_this_repository(name: str) -> None:
    service = SERVICES[name]
    if service.get("pull_policy") == "never":
        assert service["image"] == BUILT["image"]
    else:
        assert PINNED.match(service["image"]), service["image"]


def test_the_image_is_built_once() -> None:
    """Docker builds an image once per service with ``build``, and refuses the second image of the same name."""
    assert [name for name, service in SERVICES.items() if "build" in service] == ["prepared-volumes"]
    assert (DOCKER / BUILT["build"]["context"]).resolve() == ROOT
    assert (ROOT / BUILT["build"]["dockerfile"]).is_file()


@pytest.mark.parametrize("name", SERVICES)
def test_no_service_is_root_or_can_become_root(name: str) -> None:
    service = SERVICES[name]
    assert service["user"].split(":")[0] not in ("", "0", "root")
    assert service["cap_drop"] == ["ALL"]
    assert service["security_opt"] == ["no-new-privileges:true"]


@pytest.mark.parametrize("name", SERVICES)
def test_a_service_has_a_health_check_and_waits_for_those_of_others(name: str) -> None:
    service = SERVICES[name]
    assert ("healthcheck" in service) is (name not in ONCE)
    for other, condition in service.get("depends_on", {}).items():
        ends = other in ONCE
        assert condition["condition"] == ("service_completed_successfully" if ends else "service_healthy")


@pytest.mark.parametrize("name", SERVICES)
def test_secrets_are_taken_from_variables(name: str) -> None:
    for variable, value in variables(name).items():
        if SECRET.search(variable) or variable.startswith("ROOT_"):
            assert REFERENCE.search(value), f"{name}: {variable}"
    published = [port for port in SERVICES[name].get("ports", ()) if not port.startswith("127.0.0.1:")]
    assert published == []


def test_the_example_has_each_variable_and_no_secret() -> None:
    used = set(re.findall(r"(?<!\$)\$\{(\w+)", COMPOSE))
    assert used == set(EXAMPLE)
    assert set(REFERENCE.findall(COMPOSE)) == used, "compose must refuse to start without it"
    assert [name for name in EXAMPLE if re.search("SECRET|PASSWORD|_KEY", name) and EXAMPLE[name]] == []


@pytest.mark.parametrize("name", sorted(AIRFLOW))
def test_airflow_has_the_settings_of_make_cluster(name: str) -> None:
    s3 = S3Endpoint("http://127.0.0.1:1", "http://127.0.0.1:2")
    native = cluster_settings(Listen(1, "x"), s3, 3)
    given = variables(name)
    assert set(native) <= set(given)
    for variable in ("STATELIB_CATALOG", "STATELIB_STORAGE", "AIRFLOW__DATABASE__SQL_ALCHEMY_CONN"):
        assert given[variable].partition("://")[0] == native[variable].partition("://")[0]
    ours, theirs = (json.loads(env["AIRFLOW_CONN_SPARK_DEFAULT"]) for env in (native, given))
    assert ours.keys() == theirs.keys()
    assert (ours["conn_type"], ours["extra"]) == (theirs["conn_type"], theirs["extra"])
    assert set(VARIABLES) <= set(given)
    filled = {variable: REFERENCE.sub("x", value) for variable, value in given.items()}
    assert wiring.deployment(filled).root_uri() == "s3://statelib/state"


@pytest.mark.parametrize("name", sorted(WORKERS))
def test_workers_have_only_the_settings_of_the_storage(name: str) -> None:
    assert set(variables(name)) == set(S3Endpoint("", "").environment)


def test_the_commands_of_airflow_and_spark_exist(tmp_path: Path) -> None:
    wanted = {tuple(words[1:2]) for words in commands() if words[0] == "airflow"} | {("db",)}
    code = "from airflow.cli.cli_parser import ALL_COMMANDS_DICT; print(*ALL_COMMANDS_DICT)"
    env = {**os.environ, "AIRFLOW_HOME": str(tmp_path)}
    result = subprocess.run([sys.executable, "-c", code], env=env, capture_output=True, text=True, check=True)
    assert {word for (word,) in wanted} <= set(result.stdout.split())
    (core,) = (Path(pyspark.__file__).parent / "jars").glob("spark-core_*.jar")
    with zipfile.ZipFile(core) as jar:
        classes = set(jar.namelist())
    daemons = [words[1] for words in commands() if words[0] == "spark-class"]
    assert len(daemons) == 3
    assert [name for name in daemons if f"{name.replace('.', '/')}.class" not in classes] == []
    assert {words[0] for words in commands()} <= {"airflow", "spark-class", "mkdir", "sh"}


def commands() -> Iterator[list[str]]:
    return (service["command"] for service in SERVICES.values() if "command" in service)


def test_the_dockerfile_copies_existing_files_and_installs_pinned_packages() -> None:
    text = (DOCKER / "Dockerfile").read_text()
    (base,) = re.findall(r"^FROM (\S+)", text, re.MULTILINE)
    assert PINNED.match(base)
    copied = re.findall(r"^COPY (\S+) ", text, re.MULTILINE)
    assert [source for source in copied if not (ROOT / source).exists()] == []
    ignored = (ROOT / ".dockerignore").read_text()
    assert [source for source in copied if f"!{source}\n" not in ignored] == []
    assert "--require-hashes -r /opt/statelib/requirements.txt" in text
    assert re.findall(r"^USER (\S+)", text, re.MULTILINE) == ["50000:50000"]


def test_spark_finds_its_configuration() -> None:
    assert {path.name for path in (DOCKER / "spark").iterdir()} == {"log4j2.properties", "spark-defaults.conf"}
    demo, docker = ((ROOT / room / "spark" / "log4j2.properties").read_text() for room in ("demo", "docker"))
    assert demo == docker
