"""2 → 5 → 3 → 1 → 8 through the flows, in every format: each key with the owner of its key group, each entry as it
was. Source: requirements R20 to R24."""

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest

from statelib.model.checkpoint import CheckpointManifest
from statelib.model.key_groups import KeyGroupRange, subtask_ranges
from statelib.restore.entries import iter_entries
from statelib.serializers.entries.keys import decode_keys, key_groups
from tests.support.extent import cases, name_of
from tests.support.tours import Tours, Way

FORMS = {
    "heap canonical": ("heap", "canonical"),
    "heap native": ("heap", "full"),
    "heap changelog": ("heap", "changelog"),
    "rocksdb canonical": ("rocksdb", "canonical"),
    "rocksdb full": ("rocksdb", "full"),
    "rocksdb incremental": ("rocksdb", "incremental"),
    "rocksdb changelog": ("rocksdb", "changelog"),
}
SHAPES = {
    "128": (128, (2, 5, 3, 1, 8)),
    "129": (129, (2, 5, 3, 1, 8)),  # This is the first number with two bytes of key group.
    "32768": (32768, (2, 5, 1)),
    "parallelism = max": (8, (8, 3, 8, 1)),
}
CASES = cases(tuple(FORMS), tuple(SHAPES), ("remote", "local"))


@pytest.mark.parametrize(("form", "shape", "local_recovery"), CASES, ids=map(name_of, CASES))
def test_every_entry_is_moved_to_the_owner_of_its_key_group(
    tmp_path: Path, form: str, shape: str, local_recovery: str
) -> None:
    max_parallelism, way = SHAPES[shape]
    tours = Tours(tmp_path)
    tours.use(Way(*FORMS[form], local_recovery == "local", parallelism=way[0], max_parallelism=max_parallelism))
    for number, parallelism in enumerate(way, 1):
        if number > 1:
            tours.restore(number - 1, parallelism=parallelism)
        _check_owners(tours, tours.run(number), subtask_ranges(parallelism, max_parallelism))


def _check_owners(tours: Tours, manifest: CheckpointManifest, ranges: Sequence[KeyGroupRange]) -> None:
    """Assert that each handle contains exactly its own key groups, computed anew from each key, and no entry twice."""
    opened = tours.opened(manifest.checkpoint_id)
    schema, seen = opened.schema(), [set[bytes]() for _ in opened.schema().states]
    assert [handle.key_group_range for handle in opened.handles()] == list(ranges)
    for number, (source, key_group_range) in enumerate(zip(opened.sources(), ranges, strict=True)):
        for state, rows in iter_entries(source, None, f"{tours.deployment.work_directory}/read-{number}"):
            decoded = decode_keys(schema, schema.states[state], rows.keys)
            assert np.array_equal(decoded.key_groups, key_groups(schema, decoded.keys))
            assert all(group in key_group_range for group in decoded.key_groups.tolist())
            keys = rows.keys.to_list()
            assert seen[state].isdisjoint(keys)
            seen[state].update(keys)
    assert [len(keys) for keys in seen] == [statistics.total_entries for statistics in manifest.statistics]
