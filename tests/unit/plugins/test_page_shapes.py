"""Each route of the page's API declares the shape of its response, and of its errors."""

import dataclasses
import json
from typing import Any

from fastapi.routing import APIRoute
from pydantic import TypeAdapter
from statelib_airflow.api import pages, routes
from statelib_airflow.api.app import page_app
from statelib_airflow.api.responses import checkpoint_row
from statelib_airflow.api.shapes import CheckpointRow, ErrorResponse

from statelib.catalog.views.browsing import Entry

ROUTES = [route for route in routes.router.routes if isinstance(route, APIRoute)]
STORED = {"kind": "MIRROR", "state": "ARCHIVED", "owner": "NOBODY", "failure": "RUST"}


def test_each_route_declares_the_shape_of_its_response() -> None:
    assert len(ROUTES) >= 8
    assert [route.path for route in ROUTES if not dataclasses.is_dataclass(route.response_model)] == []
    assert {route.responses["default"]["model"] for route in ROUTES} == {ErrorResponse}


def test_the_document_describes_the_api_alone() -> None:
    described = page_app().openapi()["paths"]
    assert sorted(described) == sorted(route.path_format for route in ROUTES)
    files = {route.path_format for route in pages.router.routes if isinstance(route, APIRoute)}
    assert len(files) == 3
    assert not files & set(described)


def test_unknown_words_of_a_later_version_are_passed_on() -> None:
    given: dict[str, Any] = {**STORED, "pipeline": "p", "checkpoint_id": 1, "head": True, "strategy": "full"}
    given |= {"parallelism": 1, "generation": 0, "created_at_ms": 1, "begun_by": ""}
    given |= dict.fromkeys(("note", "reason", "directory", "report"), "")
    absent = {field.name for field in dataclasses.fields(Entry)} - given.keys()
    row = checkpoint_row(Entry(**given, **dict.fromkeys(absent)), "")
    shown = json.loads(TypeAdapter(CheckpointRow).dump_json(row, warnings="error"))
    assert {name: shown[name] for name in STORED} == STORED
