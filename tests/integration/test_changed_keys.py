"""A pipeline file whose key or user key changes between runs."""

import logging
from dataclasses import replace
from pathlib import Path

import pytest

from statelib.errors import InvalidRequestError
from statelib.flows.checkpoint.snapshot_plan import plan_snapshot
from statelib.flows.checkpoint.steps import begin
from statelib.flows.restore.continuation import continuation
from statelib.flows.restore.steps import plan_restore
from statelib.model.ids import CheckpointId
from statelib.model.record import ClaimMode
from tests.integration.test_evolution_flow import Shop
from tests.support.worlds import day


def test_the_columns_of_the_key_stay_in_their_order(tmp_path: Path) -> None:
    """Their types are equal, so that only their names show that the two have changed places."""
    shop = Shop(tmp_path, "heap", "canonical")
    shop.change(("key: [shop]", "key: [shop, item]"))
    shop.run(1)
    shop.change(("key: [shop, item]", "key: [item, shop]"))
    with pytest.raises(InvalidRequestError, match="expected the columns item, shop, the stored state has shop, item"):
        begin(shop.deployment, shop.deployment.pipeline("tours"), day(2), "test")
    shop.change(("key: [item, shop]", "key: [store, item]"), ("{shop: string", "{store: string"))
    begin(shop.deployment, shop.deployment.pipeline("tours"), day(2), "test")


@pytest.mark.parametrize(
    ("before", "key", "user_key", "message"),
    [
        ("[shop]", "[item]", "shop", "the column shop was in it and is a user key now"),
        ("[shop]", "[item]", "item", "the column item was a user key and is in it now"),
        ("[shop, amount]", "[item, amount]", "item", "the column item was a user key and is in it now"),
        ("[shop, amount]", "[item, amount]", "shop", "the column shop was in it and is a user key now"),
    ],
)
def test_a_column_does_not_move_between_the_key_and_a_user_key(
    tmp_path: Path, before: str, key: str, user_key: str, message: str
) -> None:
    shop = Shop(tmp_path, "heap", "canonical")
    shop.change(("key: [shop]\n", f"key: {before}\n"))
    shop.run(1)
    shop.change((f"key: {before}\n", f"key: {key}\n"), ("user_key: item", f"user_key: {user_key}"))
    with pytest.raises(InvalidRequestError, match=message) as refused:
        begin(shop.deployment, shop.deployment.pipeline("tours"), day(2), "test")
    assert (refused.value.kind, "as they were" in refused.value.hint) == ("state-schema-changed", True)


@pytest.mark.parametrize("key", ["[item]", "[item, shop]"])
def test_a_column_may_be_in_the_key_and_a_user_key(tmp_path: Path, key: str) -> None:
    shop = Shop(tmp_path, "heap", "canonical")
    shop.change(("key: [shop]\n", f"key: {key}\n"))
    shop.run(1)
    shop.run(2)


def test_a_key_column_may_get_another_name(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """The restore plan and the log of the run name it, because it may be another column."""
    shop = Shop(tmp_path, "heap", "canonical")
    shop.run(1)
    shop.change(("key: [shop]", "key: [store]"), ("{shop: string", "{store: string"))
    plan = plan_restore(shop.deployment, shop.deployment.pipeline("tours"), "1", None, ClaimMode.NO_CLAIM)
    assert plan.states[0] == "the key: shop goes on as store"
    begun = begin(shop.deployment, shop.deployment.pipeline("tours"), day(2), "test")
    with caplog.at_level(logging.WARNING):
        plan_snapshot(shop.deployment, shop.deployment.pipeline("tours"), begun.checkpoint_id)
    assert "tours: the key: shop goes on as store" in caplog.messages


def test_a_manifest_without_the_single_key_column_is_read_as_before(tmp_path: Path) -> None:
    shop = Shop(tmp_path, "heap", "canonical")
    shop.run(1)
    name = shop.deployment.pipeline("tours").name
    opened = shop.deployment.open(shop.deployment.catalog().get(name, CheckpointId(1)))
    assert opened.manifest is not None
    assert opened.manifest.key == ("shop",)
    older = replace(opened, manifest=replace(opened.manifest, key=()))
    shop.change(("key: [shop]", "key: [item]"))
    pipeline = shop.deployment.pipeline("tours")
    assert continuation(pipeline, older).check().renamed_key() == ()
    with pytest.raises(InvalidRequestError, match="the column item was a user key and is in it now"):
        continuation(pipeline, opened).check()


def test_a_user_key_may_get_another_name(tmp_path: Path) -> None:
    shop = Shop(tmp_path, "heap", "canonical")
    shop.run(1)
    shop.change(("user_key: item", "user_key: article"), ("item: string", "article: string"))
    pipeline = shop.deployment.pipeline("tours")
    plan = plan_restore(shop.deployment, pipeline, "1", None, ClaimMode.NO_CLAIM)
    assert "state 'per_item': COMPATIBLE_AS_IS (the user key: item goes on as article)" in plan.states
    begin(shop.deployment, pipeline, day(2), "test")
