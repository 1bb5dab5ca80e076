"""The catalog's contract, second part: imports, listings, and input that is not to be trusted."""

from dataclasses import replace

import pytest
from sqlalchemy import create_engine, insert, select
from sqlalchemy.exc import IntegrityError

from statelib.catalog.catalog import Catalog
from statelib.catalog.tables.schema import CHECKPOINT, FILE, REF
from statelib.errors import ConflictError, InvalidRequestError, NotFoundError
from statelib.model.ids import CheckpointId, PipelineName
from statelib.model.record import CheckpointState, Owner
from tests.contract import catalog_kit
from tests.contract.catalog_kit import PIPE, attempt, complete, day, facts, locate, request, rows

postgresql, url, catalog = catalog_kit.postgresql, catalog_kit.url, catalog_kit.catalog


def test_an_imported_savepoint_can_be_restored(catalog: Catalog):
    complete(catalog, 0)
    fields = {"directory": "file:/elsewhere/sp", "strategy": "canonical", "parallelism": 3}
    record = catalog.import_savepoint(PIPE, interval=day(9), facts=facts(50), note="from a colleague", **fields)
    assert (record.state, record.owner, record.base) == (CheckpointState.COMPLETED, Owner.USER, None)
    assert (record.directory, record.note, record.attempt) == ("file:/elsewhere/sp", "from a colleague", attempt(50))
    assert catalog.head(PIPE).head == 1, "importing moves nothing"
    assert catalog.import_savepoint(PIPE, interval=day(9), facts=facts(50), **fields) == record
    with pytest.raises(ConflictError) as refusal:
        catalog.import_savepoint(PIPE, interval=day(9), facts=facts(50), owner=Owner.SYSTEM, **fields)
    assert refusal.value.kind == "already-imported"
    catalog.restore(PIPE, record.checkpoint_id, None, "operator")
    assert catalog.applied(PIPE, day(9)) == record
    assert catalog.applied(PIPE, day(0)) is None
    assert [r.checkpoint_id for r in catalog.lineage(PIPE, complete(catalog, 10).checkpoint_id)] == [3, 2]


def test_a_foreign_savepoint_can_be_imported_into_a_new_pipeline(catalog: Catalog):
    record = catalog.import_savepoint(
        PIPE, directory="file:/sp", strategy="canonical", parallelism=1, interval=None, facts=facts(1)
    )
    assert (record.checkpoint_id, record.epoch) == (1, 0)
    assert catalog.restore(PIPE, record.checkpoint_id, 2, "operator").head == 1


def test_a_claim_makes_the_system_the_owner_of_checkpoint_and_files(url: str, catalog: Catalog):
    saved = catalog.begin(request(None), locate) if complete(catalog, 0) else None
    assert saved is not None
    saved = catalog.commit(PIPE, saved.checkpoint_id, saved.epoch, facts(60))
    assert (saved.owner, owners(url, saved.checkpoint_id)) == (Owner.USER, {"USER"})
    catalog.restore(PIPE, saved.checkpoint_id, None, "operator")
    assert catalog.get(PIPE, saved.checkpoint_id).owner is Owner.USER
    catalog.restore(PIPE, saved.checkpoint_id, None, "operator", claim=True)
    assert catalog.get(PIPE, saved.checkpoint_id).owner is Owner.SYSTEM
    assert owners(url, saved.checkpoint_id) == {"SYSTEM"}


def test_checkpoints_that_share_a_file_share_its_row(url: str, catalog: Catalog):
    first = facts(1)
    for number in (1, 2):
        record = catalog.begin(request(number), locate)
        files = tuple({f.path: f for f in (*first.files, *facts(number).files)}.values())
        catalog.commit(PIPE, record.checkpoint_id, record.epoch, facts(number, files))
    shared, own = first.files[0].path, facts(2).files[0].path
    made_by = dict(rows(url, select(FILE.c.file_id, FILE.c.created_by)))
    assert made_by == {shared: 1, own: 2}
    assert sorted(rows(url, select(REF.c.checkpoint_id, REF.c.file_id))) == [(1, shared), (2, shared), (2, own)]


def owners(url: str, checkpoint_id: CheckpointId) -> set[str]:
    mine = select(REF.c.file_id).where(REF.c.pipeline == PIPE, REF.c.checkpoint_id == checkpoint_id)
    return {owner for (owner,) in rows(url, select(FILE.c.owner).where(FILE.c.file_id.in_(mine)))}


def test_listing_is_newest_first_and_filtered(catalog: Catalog):
    complete(catalog, 0)
    catalog.abort(PIPE, catalog.begin(request(1), locate).checkpoint_id, "x")
    complete(catalog, 1)
    complete(catalog, 0, PipelineName("aircraft"))
    names = [(r.pipeline, r.checkpoint_id) for r in catalog.list()]
    assert names == [("aircraft", 1), ("flights", 3), ("flights", 2), ("flights", 1)]
    assert [r.checkpoint_id for r in catalog.list(PIPE, {CheckpointState.COMPLETED})] == [3, 1]
    assert [r.checkpoint_id for r in catalog.list(PIPE, limit=2)] == [3, 2]
    assert catalog.list(PipelineName("unknown")) == []
    with pytest.raises(NotFoundError, match="flights has no checkpoint 4"):
        catalog.lineage(PIPE, CheckpointId(4))


@pytest.mark.parametrize("number", [None, 0])
def test_a_request_needs_the_interval_of_its_kind(catalog: Catalog, number: int | None):
    wrong = [day(0)] if number is None else [None, replace(day(0), end_ms=0)]
    for interval in wrong:
        with pytest.raises(InvalidRequestError) as refusal:
            catalog.begin(replace(request(number), interval=interval), locate)
        assert refusal.value.kind == "bad-interval"


def test_text_is_stored_as_data_and_never_executed_as_sql(catalog: Catalog):
    nasty = "'; DROP TABLE checkpoint; -- %s :x \N{SNOWMAN}"
    record = catalog.begin(request(None, key=nasty, owner=nasty), locate)
    aborted = catalog.abort(PIPE, record.checkpoint_id, nasty)
    assert (aborted.key, aborted.reason) == (nasty, nasty)


def test_the_database_itself_refuses_a_second_pending_checkpoint(url: str, catalog: Catalog):
    record = catalog.begin(request(0), locate)
    engine = create_engine(url)
    with engine.begin() as connection:
        values = dict(connection.execute(select(CHECKPOINT)).one()._mapping)
    with pytest.raises(IntegrityError), engine.begin() as connection:
        connection.execute(insert(CHECKPOINT).values({**values, "checkpoint_id": record.checkpoint_id + 1}))
    engine.dispose()
