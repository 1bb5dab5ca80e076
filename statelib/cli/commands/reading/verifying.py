"""``statelib verify``: prove that snapshots are complete and undamaged."""

import secrets
from collections.abc import Callable, Iterator, Mapping
from contextlib import nullcontext
from dataclasses import asdict, dataclass
from typing import Annotated

import typer

from statelib.cli import completion
from statelib.cli.ending import errors
from statelib.cli.named_snapshots import KeyType, Relocate, absolute, moves_of, type_of
from statelib.cli.options import Json, PipelineOption
from statelib.cli.paths import explained_as_id, path_of
from statelib.cli.presenters.blocks import Block, Line, Note, present
from statelib.cli.presenters.console import ProgressBar
from statelib.cli.presenters.values import count, size
from statelib.errors import InvalidRequestError
from statelib.flows import wiring
from statelib.flows.cleanup.each_pipeline import Troubles
from statelib.flows.views.inspection import check_pipeline, completed, stored_record
from statelib.flows.views.verification import is_deleted
from statelib.flows.wiring import Deployment
from statelib.model.amounts import amount, plural
from statelib.model.record import CheckpointRecord
from statelib.model.types import StateType
from statelib.savepoints.opened import Checkpoint
from statelib.savepoints.verification.sampling import Sample, sample, seed_of
from statelib.savepoints.verification.snapshots import Verification, verify_at, verify_sample


@dataclass(frozen=True)
class _Reading:
    """The part of the snapshots to read: every byte and entry (``data``), a subset of the files, or nothing."""

    data: bool
    subset: Sample | None

    def verifier(self, files_seen: set[str]) -> Callable[[Checkpoint], Verification] | None:
        """Return the function that verifies the subset of a snapshot; None if there is no subset. A file that several
        snapshots share is read once: ``files_seen`` collects the paths."""
        subset = self.subset
        return None if subset is None else lambda opened: verify_sample(opened, subset, files_seen)


def verify_(
    snapshot: Annotated[
        str | None,
        typer.Argument(
            help="<pipeline>/<id>, <pipeline>, which means its head, or the path of a snapshot directory. Default: all "
            "completed ones.",
            autocompletion=completion.snapshots,
        ),
    ] = None,
    pipeline: PipelineOption = None,
    *,
    read_data: Annotated[bool, typer.Option(help="Read every byte and count every entry.")] = True,
    subset: Annotated[
        str | None,
        typer.Option(
            "--read-data-subset",
            metavar="PERCENT|PART/PARTS",
            help="Read only a part of the files: a share, such as 5%, or one part of several, such as 1/20."
            " Twenty runs, from 1/20 to 20/20, read all files.",
        ),
    ] = None,
    seed: Annotated[
        str | None,
        typer.Option("--seed", help="Seed of a share: the same seed chooses the same files. Default: a new one."),
    ] = None,
    relocate: Relocate = None,
    key_type: KeyType = None,
    as_json: Json = False,
) -> None:
    """Prove that snapshots are whole: files, sizes, checksums, counts and digests. Exit status 1 if one is not."""
    with errors(as_json):
        reading = _reading(read_data, subset, seed)
        results = _verify_all(snapshot, pipeline, reading, moves_of(relocate), type_of(key_type))
    seed_used = None if reading.subset is None else reading.subset.seed
    document = [asdict(result) | {"subset_seed": seed_used} for result in results]
    present(document, _view(results, subset, seed_used), as_json)
    if _damaged(results) or any(result.unread for result in results):
        raise typer.Exit(1)


def _reading(read_data: bool, subset: str | None, seed: str | None) -> _Reading:
    if subset is None:
        if seed is not None:
            raise InvalidRequestError("--seed goes with --read-data-subset", kind="bad-subset")
        return _Reading(read_data, None)
    if not read_data:
        raise InvalidRequestError("--no-read-data reads no subset either: expected one of them", kind="bad-subset")
    return _Reading(False, sample(subset, seed_of(subset, secrets.token_hex(4)) if seed is None else seed))


def _damaged(results: list[Verification]) -> int:
    return sum(bool(result.problems) for result in results)


def _verify_all(
    snapshot: str | None, pipeline: str | None, reading: _Reading, moves: Mapping[str, str], key_type: StateType | None
) -> list[Verification]:
    if snapshot and pipeline:
        raise InvalidRequestError(
            f"both the snapshot {snapshot} and the pipeline {pipeline} are given: expected one of them",
            kind="bad-target",
        )
    path, seen = path_of(snapshot) if snapshot else "", set[str]()
    verifier = reading.verifier(seen)
    if path:
        result = verify_at(
            path, own=False, read_data=reading.data, verified=verifier, storage_root=wiring.storage_root(),
            relocate=absolute(moves), key_type=key_type,
        )  # fmt: skip
        return [result]
    if moves:
        raise InvalidRequestError("--relocate goes with the path of one snapshot", kind="bad-relocation")
    with explained_as_id(snapshot) if snapshot else nullcontext():
        deployment = wiring.begun_deployment()
    troubles = Troubles()
    records = _records(deployment, snapshot, pipeline, troubles)
    unread = [Verification(trouble.pipeline, 0, 0, None, (trouble.message,)) for trouble in troubles.in_order()]
    if not records:
        troubles.check()
    results = []
    with ProgressBar(len(records)) as progress:
        for record in records:
            progress.next_piece(f"verifying {record.directory}")
            before = frozenset(seen)
            result = verify_at(
                record.directory, own=True, read_data=reading.data, verified=verifier, scratch=deployment.scratch(),
                storage_root=deployment.storage_root,
            )  # fmt: skip
            if result.problems and not snapshot and is_deleted(deployment, record):
                seen.intersection_update(before)
                continue
            results.append(result)
    return unread + results


def _records(
    deployment: Deployment, snapshot: str | None, pipeline: str | None, troubles: Troubles
) -> list[CheckpointRecord]:
    """Return the records of the snapshots to verify, oldest first per pipeline."""
    if snapshot:
        with explained_as_id(snapshot):
            return [stored_record(deployment, snapshot)]
    names = [check_pipeline(deployment, pipeline)] if pipeline else deployment.catalog().pipelines()
    records = troubles.each(names, lambda name: completed(deployment, name))
    return [record for of_pipeline in records for record in reversed(of_pipeline)]


def _view(results: list[Verification], subset: str | None, seed: str | None) -> Iterator[Block]:
    for result in results:
        state = "DAMAGED" if result.problems else "unread" if result.unread else "whole"
        amounts = "  ".join([
            _aligned(result.files, "file", 5), f"{size(result.size_bytes):>10}",
            _aligned(result.keys, "key", 12), _aligned(result.entries, "entry", 12),
        ])  # fmt: skip
        yield Line(f"{state:<8}{amounts}  {result.directory}")
        for problem in (*result.problems, *result.unread):
            yield Line(f"    {problem}")
    unread = sum(bool(result.unread) for result in results)
    also = f", {unread} unread" if unread else ""
    yield Note(f"{len(results)} verified, {_damaged(results)} damaged{also}")
    if subset is not None:
        files_read = sum(result.files_read - 1 for result in results)
        options = f"--read-data-subset {subset}" + (f" --seed {seed}" if seed else "")
        yield Note(f"{amount(files_read, 'file')} read besides _metadata; {options} reads the same ones")


def _aligned(number: int | None, noun: str, width: int) -> str:
    """Return a number and its noun, as wide in every line."""
    nouns = noun if number == 1 else plural(noun)
    return f"{count(number):>{width}} {nouns:<{len(plural(noun))}}"
