"""Fields that are added to the stored state of a pipeline whose source takes back the values of earlier events."""

import pytest

from statelib.definition.pipeline import Pipeline
from statelib.errors import InvalidRequestError
from statelib.formats.manifest.manifest_json import SCHEMA
from statelib.model.state import KeyedStateSchema
from statelib.restore.schemas.evolution import evolve

COLUMNS = {"k": "string", "n": "long"}
CHANGES = {"path": "changes/{start}", "changes": "op", "columns": COLUMNS}
EVENTS = {"path": "events/{start}", "columns": {"k": "string", "seconds": "long"}}
HISTOGRAM = {"agg": "histogram", "of": "n", "bounds": [10]}


def schema(**fields: object) -> KeyedStateSchema:
    document = {
        "name": "p",
        "sources": {"orders": CHANGES, "visits": EVENTS},
        "key": "k",
        "states": {"s": {"kind": "value", "fields": {"total": {"agg": "sum", "of": "n"}, **fields}}},
        "backend": "heap",
    }
    return Pipeline.model_validate(document).schema()


def recorded(written: KeyedStateSchema) -> KeyedStateSchema:
    """Return the schema as a later run reads it from the manifest."""
    return SCHEMA.read(SCHEMA.write(written), "schema")


@pytest.mark.parametrize("field", [{"agg": "avg", "of": "n"}, HISTOGRAM])
def test_an_average_or_a_histogram_cannot_be_added(field: dict[str, object]) -> None:
    """The first update of a row that is already stored would take back a value that was never added."""
    with pytest.raises(InvalidRequestError, match=f"field 'added': expected {field['agg']}, found no such") as caught:
        evolve(schema(added=field), recorded(schema())).check(allow_non_restored=True)
    assert caught.value.kind == "state-schema-changed"
    same = evolve(schema(added=field), recorded(schema(added=field)))
    same.check(allow_non_restored=False)
    assert not same.rewrites
    evolve(schema(moved={**field, "renamed_from": "added"}), recorded(schema(added=field))).check(
        allow_non_restored=False
    )


@pytest.mark.parametrize("field", [{"agg": "count"}, {"agg": "sum", "of": "n"}, {"agg": "avg", "of": "seconds"}])
def test_fields_that_lose_nothing_to_an_update_can_be_added(field: dict[str, object]) -> None:
    evolve(schema(added=field), recorded(schema())).check(allow_non_restored=False)


def test_the_condition_for_adding_a_field_is_not_recorded() -> None:
    written = schema(added=HISTOGRAM)
    assert recorded(written) == written.as_recorded() != written
