"""Checks of ``publish:`` in a pipeline file: the names in it exist, and the tables have columns that fit together."""

import re
from collections import Counter
from collections.abc import Collection, Iterator

from statelib.definition.checks.names import alike, name_problems
from statelib.definition.declared import DeclaredPipeline
from statelib.definition.frame_columns import FrameColumn
from statelib.definition.parts.publish import Publication
from statelib.definition.problems import Problem, Where, did_you_mean
from statelib.definition.published_columns import (
    OF_CHANGES,
    ROW_NUMBER,
    chosen_names,
    output_columns,
    output_names,
    state_columns,
)
from statelib.definition.source.templates import placeholders
from statelib.errors import StatelibError

_ICEBERG = re.compile(r"\w+(\.\w+){2,}")


def check_publications(pipeline: DeclaredPipeline) -> Iterator[Problem]:
    """Yield the problems of ``publish:``. The states of the pipeline must have no problems, because the columns follow
    from them."""
    targets: dict[str, str] = {}
    for name, publication in pipeline.publish.items():
        where: Where = ("publish", name)
        yield from name_problems(name, where)
        yield from _check_target(publication, (*where, "target"))
        place = publication.target.rstrip("/")
        if place in targets:
            text = f"{targets[place]!r} is published there: every table needs a place of its own"
            yield Problem((*where, "target"), text)
        targets.setdefault(place, name)
        if (publication.mode, publication.format) != ("table", "parquet") and "retain" in publication.model_fields_set:
            yield Problem((*where, "retain"), "belongs to mode: table in format: parquet")
        if publication.output is None:
            yield from _check_state(pipeline, publication, where)
        else:
            yield from _check_output(pipeline, publication, publication.output, where)


def _check_target(publication: Publication, where: Where) -> Iterator[Problem]:
    target = publication.target
    if publication.format == "iceberg":
        if not _ICEBERG.fullmatch(target):
            yield Problem(where, f"expected <catalog>.<namespace>.<table>, as in lake.sales.revenue, found {target!r}")
        return
    try:
        unknown = [name for name in placeholders(target) if name != "data"]
    except ValueError as error:
        yield Problem(where, f"not a template: {error}")
        return
    if unknown:
        yield Problem(where, f"expected {{data}} as the only placeholder, found {{{unknown[0]}}}")
    elif not (target.startswith(("/", "{data}")) or ":/" in target):
        yield Problem(where, f"expected an absolute path or a URI, or {{data}} at the beginning, found {target!r}")
    elif ".." in target.split("/"):
        yield Problem(where, f"expected a path without '..', found {target!r}")


def _check_state(pipeline: DeclaredPipeline, publication: Publication, where: Where) -> Iterator[Problem]:
    states = ", ".join(pipeline.states)
    if publication.state is None and len(pipeline.states) > 1:
        yield Problem(where, f"expected 'state', the one of {states} that is published, or 'output'")
    elif publication.state is not None and publication.state not in pipeline.states:
        meant = did_you_mean(publication.state, pipeline.states)
        yield Problem((*where, "state"), f"no state {publication.state!r}{meant}; states are {states}")
    else:
        try:
            columns = state_columns(pipeline, publication)
        except StatelibError:
            return
        yield from _check_columns(columns, publication, (*where, "columns"))


def _check_output(pipeline: DeclaredPipeline, publication: Publication, output: str, where: Where) -> Iterator[Problem]:
    if publication.state is not None:
        yield Problem(where, "expected one of 'state' and 'output', found both")
    if publication.mode != "changes":
        yield Problem((*where, "mode"), "an output is published as a feed only: expected changes")
    if output not in pipeline.outputs:
        meant = did_you_mean(output, pipeline.outputs)
        names = ", ".join(pipeline.outputs) or "none"
        yield Problem((*where, "output"), f"no output {output!r}{meant}; outputs are {names}")
        return
    columns = output_names(pipeline, output)
    published = output_columns(pipeline, publication)
    for column in (column for column in published.values() if column not in columns):
        meant = did_you_mean(column, columns)
        yield Problem((*where, "columns"), f"no column {column!r}{meant}; columns are {', '.join(columns)}")
    yield from _check_names(publication, published, (*where, "columns"))


def _check_columns(columns: dict[str, FrameColumn], publication: Publication, where: Where) -> Iterator[Problem]:
    unknown = [source for source in publication.columns.values() if source not in columns]
    for source in unknown:
        meant = did_you_mean(source, columns)
        yield Problem(where, f"no column {source!r}{meant}; columns are {', '.join(columns)}")
    if unknown:
        return
    for source, times in Counter(publication.columns.values()).items():
        if times > 1 and columns[source].is_key:
            yield Problem(where, f"column {source!r} identifies the row, and can be published once only")
            return
    published = chosen_names(columns, publication)
    identifying = [name for name, column in columns.items() if column.is_key]
    others = [source for source in publication.columns.values() if not columns[source].is_key]
    if len(published) < len(identifying) + len(others):
        yield Problem(where, "a column that identifies the row has a name that another column is published under")
    yield from _check_names(publication, published, where)


def _check_names(publication: Publication, published: Collection[str], where: Where) -> Iterator[Problem]:
    own = OF_CHANGES if publication.output is None else (*OF_CHANGES, ROW_NUMBER)
    for name in published:
        yield from name_problems(name, where)
        if name.lower() in own and (publication.mode == "changes" or publication.format == "delta"):
            feed = "a feed of changes" if publication.mode == "changes" else "what is merged into a Delta table"
            yield Problem(where, f"{feed} has a column {name!r} of its own: rename this one, as in {{total: {name}}}")
    for earlier, name in alike(published):
        yield Problem(where, f"readers of the table could not distinguish the columns {earlier!r} and {name!r}")
