"""Random histories of a pipeline whose runs read only the entries that their events touch: its checkpoints are always
those of a pipeline whose runs read the state as a whole."""

import tempfile
from collections import Counter
from pathlib import Path
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from statelib.savepoints.verification.snapshots import verify
from tests.support.extent import examples
from tests.support.twins import DELETES, Twins, counts, manifest

PIPELINE = """\
name: NAME
source: {path: "{data}/{start}-{end}", columns: {user: string, item: string, price: long, at: long}}
key: [user]
states:
  spent: {kind: value, fields: {sum: {agg: sum, of: price}, items: {agg: distinct, of: item}}}
  seen: {kind: value, fields: {n: long}, function: "tests.property.touched_functions:update"}
  names: {kind: list, value: {agg: collect, of: item, limit: 4}}
  per_item: {kind: map, user_key: item, fields: {n: {agg: count}, most: {agg: max, of: price}}}
backend: rocksdb
parallelism: PARALLELISM
max_parallelism: 8
checkpoint: {strategy: changelog, materialize_after_checkpoints: 3, inline_threshold_bytes: 0, reads: READS}
"""
DELETING = PIPELINE.replace("source: {", f"order_by: [at]\n{DELETES}").replace("  per_item:", "# per_item:")
"""A map is left out: its entries of a deleted key are known only to somebody who reads it."""
STEPS = st.one_of(
    st.tuples(st.just("run"), st.lists(st.integers(0, 30), max_size=12)),
    st.tuples(st.just("run"), st.lists(st.integers(0, 5), max_size=4)),
    st.tuples(st.just("restore"), st.integers(0, 5)),
    st.tuples(st.just("rescale"), st.integers(1, 3)),
)


class Compared(Twins):
    """A pipeline that reads touched entries, and one of the same definition that reads all."""

    def __init__(self, root: Path, file: str) -> None:
        self.origins: Counter[str] = Counter()
        super().__init__(root, file, {"touched": {"READS": "touched"}, "plain": {"READS": "whole"}})

    def compare(self) -> None:
        super().compare()
        touched, plain = self.opened("touched"), self.opened("plain")
        assert verify(touched).problems == verify(plain).problems == ()
        assert counts(touched) == counts(plain)
        self.origins.update(manifest(touched).restored_from)


@settings(max_examples=examples(16), deadline=None)
@given(steps=st.lists(STEPS, min_size=4, max_size=12), file=st.sampled_from([PIPELINE, DELETING]))
def test_runs_that_read_touched_entries_write_the_checkpoints_of_others(
    steps: list[tuple[str, Any]], file: str
) -> None:
    with tempfile.TemporaryDirectory() as root:
        twins = Compared(Path(root), file)
        for name, argument in steps:
            getattr(twins, name)(argument)


def test_a_history_of_small_batches_reads_touched_entries(tmp_path: Path) -> None:
    twins = Compared(tmp_path, PIPELINE)
    for users in (list(range(30)), [1, 2], [2, 40], [0, 1], [3]):
        twins.run(users)
    assert twins.origins["touched"] >= 4
