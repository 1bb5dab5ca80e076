"""Row W-feed: a run that also publishes a feed of its changes, against the same run without it; and the bytes that this
takes besides the checkpoint, against those of the changed rows as they are serialized, and of the feed's files.

Batches touch 1 % of the keys. A turn is the Spark job, the registration and the publishing.
"""

from collections.abc import Iterable
from pathlib import Path

from statelib.definition.pipeline import Pipeline, load_pipeline
from statelib.flows.publication.steps import publish_tables
from statelib.savepoints.recorded_changes import changes_name
from tests.benchmarks.checks import expected, verdict
from tests.benchmarks.contenders import Stateful, new_session
from tests.benchmarks.events import batch_directory, new_deployment, new_pipeline, write_batches
from tests.benchmarks.measure import Contender, Ratio, take_turns
from tests.benchmarks.rows.small_batches import ROW_BYTES
from tests.benchmarks.written import Written

KEYS = 2_000_000
TOUCHED = 0.01
WARMUPS = 2
ROWS = ("W-feed",)
PUBLISH = '\npublish: {feed: {target: "{data}/feed", mode: changes}}\n'


class Publishing(Stateful):
    """A pipeline's job, with the registration and the publishing of its checkpoint."""

    def contender(self) -> Contender:
        return Contender(self._turn, self._begin)

    def _turn(self, number: int) -> None:
        self._run(number)
        self._register(number)
        publish_tables(self._deployment, self._pipeline)

    def recorded_bytes(self) -> int:
        """Return the bytes of the changes that the newest checkpoint recorded."""
        manifest = self.opened().manifest
        records = manifest.side_data if manifest else ()
        return sum(record.handle.size_bytes for record in records if record.name == changes_name("activity"))


def run(_: Iterable[str], root: Path, runs: int, scale: float) -> list[Ratio]:
    keys = max(int(KEYS * scale), 1000)
    events = max(int(keys * TOUCHED), 10)
    write_batches(root, 1, keys)
    write_batches(root, WARMUPS + runs, events, keys=keys, touched=TOUCHED, first=1)
    spark = new_session(root)
    try:
        deployment = new_deployment(root)
        bare = Publishing(spark, deployment, new_pipeline(root, "rocksdb", "incremental"))
        feeding = Publishing(
            spark, deployment, _with_feed(root, new_pipeline(root, "rocksdb", "incremental", name="fed"))
        )
        written, feed = Written([root / "data" / "feed"]), []
        recorded: list[float] = []

        def after(_: int) -> None:
            feed.append(written.taken() / 1e6)
            recorded.append(feeding.recorded_bytes() / 1e6)

        fed = feeding.contender()
        sides = {"bare": bare.contender(), "fed": Contender(fed.turn, fed.before, after)}
        cpu = take_turns(sides, runs, WARMUPS)
        totals = {"bare": bare.totals(), "fed": feeding.totals()}
    finally:
        spark.stop()
    right = expected([batch_directory(root, number) for number in range(WARMUPS + runs)])
    note = verdict(totals, right) or f"{events:,} events onto {right[0]:,} keys"
    both = tuple(one + other for one, other in zip(recorded[-runs:], feed[-runs:], strict=True))
    changed = tuple(events * ROW_BYTES / 1e6 for _ in both)
    return [
        Ratio(
            "W-feed",
            "RocksDB incremental, with a feed",
            "without",
            "≤ 1.25",
            "cpu s",
            cpu["fed"],
            cpu["bare"],
            note=note,
        ),
        Ratio("W-feed", "recorded changes and feed", "the changed rows", "≤ 1.2", "MB", both, changed, note=note),
        Ratio("W-feed", "recorded changes and feed", "the feed", "≤ 1.2", "MB", both, tuple(feed[-runs:]), note=note),
    ]


def _with_feed(root: Path, pipeline: Pipeline) -> Pipeline:
    path = root / "pipelines" / f"{pipeline.name}.yaml"
    path.write_text(path.read_text() + PUBLISH)
    return load_pipeline(path)
