"""Checks of a whole pipeline file, whose parts must fit together. Pure: they yield problems and never raise."""

from collections import Counter
from collections.abc import Iterator

from statelib.definition.checks.checkpoint.blind import check_blind
from statelib.definition.checks.checkpoint.mendable import check_mendable
from statelib.definition.checks.checkpoint.touched import check_reads
from statelib.definition.checks.names import alike, name_problems
from statelib.definition.checks.outputs import check_outputs
from statelib.definition.checks.publish import check_publications
from statelib.definition.checks.quality import check_checks
from statelib.definition.checks.sources.together import check_sources
from statelib.definition.checks.states.operators import check_hooks, check_operator_states, check_side_data
from statelib.definition.checks.states.renames import check_renames
from statelib.definition.checks.states.state import check_state, key_type_text
from statelib.definition.checks.states.time import not_declared
from statelib.definition.declared import DeclaredPipeline
from statelib.definition.frame_columns import frame_columns
from statelib.definition.parts.model import CheckpointSettings, Hooks
from statelib.definition.parts.types import Columns, columns_of, is_key_type
from statelib.definition.problems import Problem, did_you_mean
from statelib.errors import StatelibError
from statelib.model.choices import Backend, Strategy
from statelib.model.ids import SAVEPOINTS_DIRECTORY, pipeline_name

STRATEGIES = {
    Backend.HEAP: (Strategy.CANONICAL, Strategy.FULL, Strategy.CHANGELOG),
    Backend.ROCKSDB: (Strategy.FULL, Strategy.INCREMENTAL, Strategy.CANONICAL, Strategy.CHANGELOG),
}
"""The strategies of each backend. The first one is its default."""
OF_CHANGELOG = ("materialize_after_bytes", "materialize_after_checkpoints", "blind", "reads")
"""Settings that have no effect with another strategy."""
MAX_KEY_COLUMNS = 25
"""Flink's largest tuple."""


def find_problems(pipeline: DeclaredPipeline) -> Iterator[Problem]:
    """Yield every problem of a pipeline whose parts have the right form."""
    problems = list(_find_problems(pipeline))
    # Checks and published tables name columns of states, which exist only if the states have no problems.
    yield from problems or [*_check_columns(pipeline), *check_checks(pipeline), *check_publications(pipeline)]


def _find_problems(pipeline: DeclaredPipeline) -> Iterator[Problem]:
    columns = columns_of(pipeline.declared_columns())
    yield from _check_name(pipeline.name)
    yield from name_problems(pipeline.uid, ("uid",))
    yield from check_sources(pipeline)
    yield from _check_key(pipeline.key, columns)
    if not pipeline.states:
        yield Problem(("states",), "expected at least one state")
    for earlier, name in alike(pipeline.states):
        yield Problem(("states", name), f"state {earlier!r} has this name: a query could not distinguish them")
    for name, state in pipeline.states.items():
        yield from check_state(name, state, columns, pipeline.key)
    yield from check_outputs(pipeline)
    functions = any(s.function is not None for s in pipeline.states.values()) or pipeline.hooks != Hooks()
    yield from check_operator_states(pipeline.operator_states, functions)
    yield from check_side_data(pipeline.side_data, functions)
    yield from check_hooks(pipeline.hooks)
    yield from check_renames(pipeline.states)
    if pipeline.name in pipeline.renamed_from:
        yield Problem(("renamed_from",), f"{pipeline.name!r} is the present name")
    yield from _check_strategy(pipeline.backend, pipeline.checkpoint)
    yield from check_blind(pipeline)
    yield from check_mendable(pipeline)
    yield from check_reads(pipeline)
    if pipeline.parallelism > pipeline.max_parallelism:
        text = f"{pipeline.parallelism} is more than max_parallelism, {pipeline.max_parallelism}"
        yield Problem(("parallelism",), text)


def _check_name(name: str) -> Iterator[Problem]:
    try:
        pipeline_name(name)
    except StatelibError as error:
        yield Problem(("name",), error.message)
    if name == SAVEPOINTS_DIRECTORY:
        yield Problem(("name",), f"{name!r} is the directory of savepoints in the storage: choose another name")


def _check_key(key: tuple[str, ...], columns: Columns) -> Iterator[Problem]:
    if not 1 <= len(key) <= MAX_KEY_COLUMNS:
        yield Problem(("key",), f"expected 1 to {MAX_KEY_COLUMNS} columns, found {len(key)}")
    for i, name in enumerate(key):
        if name in key[:i]:
            yield Problem(("key", i), f"column {name!r} is given twice")
        elif name not in columns:
            yield not_declared(name, columns, ("key", i))
        elif not is_key_type(columns[name]):
            yield Problem(("key", i), key_type_text(name, columns))


def _check_columns(pipeline: DeclaredPipeline) -> Iterator[Problem]:
    """Yield a problem per name that two columns of a state's flat table have, and per pair of names that differ only
    in capital letters: tables and queries would show one of the two columns."""
    try:
        schema = pipeline.schema()
    except StatelibError:
        return
    hint = "give a field another name, and write its present one in 'renamed_from'"
    for state in map(schema.state, pipeline.states):
        where = ("states", state.name)
        names = [column.name for column in frame_columns(pipeline.key, schema.key_type, state)]
        for name in (name for name, times in Counter(names).items() if times > 1):
            text = f"two columns of its table would be called {name!r}, such as a field and the part of an average"
            yield Problem(where, f"{text}: {hint}")
        for earlier, name in alike(names):
            yield Problem(where, f"a query could not distinguish its columns {earlier!r} and {name!r}: {hint}")


def _check_strategy(backend: Backend, checkpoint: CheckpointSettings) -> Iterator[Problem]:
    allowed, strategy = [each.value for each in STRATEGIES[backend]], checkpoint.strategy
    if strategy not in allowed:
        meant = did_you_mean(strategy, allowed)
        text = f"backend {backend} takes {', '.join(allowed)}, found {strategy!r}{meant}"
        yield Problem(("checkpoint", "strategy"), text)
    elif strategy != Strategy.CHANGELOG:
        defaults = CheckpointSettings()
        for name in OF_CHANGELOG:
            if getattr(checkpoint, name) != getattr(defaults, name):
                yield Problem(("checkpoint", name), f"belongs to strategy: {Strategy.CHANGELOG}, found {strategy}")
