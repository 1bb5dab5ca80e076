"""``statelib verify``: prove that snapshots are whole."""

import secrets
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from typing import Annotated

import typer
from rich.progress import Progress

from statelib.cli import completion
from statelib.cli.commands.reading.snapshots import absolute
from statelib.cli.elsewhere import KeyType, Relocate, moves_of, type_of
from statelib.cli.output import Json, PipelineOption, count, err, errors, line, note, print_json, size
from statelib.cli.places import path_of, taken_for_id
from statelib.errors import InvalidRequestError
from statelib.flows.cleanup.each_pipeline import Troubles
from statelib.flows.views.inspection import check_pipeline, completed, stored_record
from statelib.flows.wiring import Deployment, begun_deployment, storage_root
from statelib.model.amounts import amount, plural
from statelib.model.types import StateType
from statelib.savepoints.opened import Checkpoint
from statelib.savepoints.sampling import Sample, sample, seed_of
from statelib.savepoints.verification import Verification, verify_at, verify_sample


@dataclass(frozen=True)
class _Reading:
    """How much is read: every byte and entry, or a subset of the files (``chosen``), or nothing."""

    data: bool
    chosen: Sample | None

    def of(self, seen: set[str]) -> Callable[[Checkpoint], Verification] | None:
        chosen = self.chosen
        return None if chosen is None else lambda opened: verify_sample(opened, chosen, seen)


def verify_(
    snapshot: Annotated[
        str | None,
        typer.Argument(help="<pipeline>/<id> or a path; all completed if absent.", autocompletion=completion.snapshots),
    ] = None,
    pipeline: PipelineOption = None,
    *,
    read_data: Annotated[bool, typer.Option(help="Read every byte and count every entry.")] = True,
    subset: Annotated[
        str | None,
        typer.Option(
            "--read-data-subset",
            metavar="PERCENT|PART/PARTS",
            help="Of all files read so many, such as 5%, or one part, such as 1/20: twenty runs then read all of them.",
        ),
    ] = None,
    seed: Annotated[
        str | None, typer.Option("--seed", help="Of the subset: the same one chooses the same files. Shown if absent.")
    ] = None,
    relocate: Relocate = None,
    key_type: KeyType = None,
    as_json: Json = False,
) -> None:
    """Prove that snapshots are whole: files, sizes, checksums, counts, digests. Exit status 1 if not."""
    with errors(as_json):
        reading = _reading(read_data, subset, seed)
        results = _verify_all(snapshot, pipeline, reading, moves_of(relocate), type_of(key_type))
    chosen = None if reading.chosen is None else reading.chosen.seed
    if as_json:
        print_json([asdict(result) | {"subset_seed": chosen} for result in results])
    else:
        _print_verified(results)
        if reading.chosen is not None:
            read = sum(result.files_read - 1 for result in results)
            same = f"--read-data-subset {subset}" + (f" --seed {chosen}" if chosen else "")
            note(f"{amount(read, 'file')} read; {same} reads the same ones")
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
    path = path_of(snapshot) if snapshot else ""
    verified = reading.of(set())
    if path:
        told = verify_at(
            path, own=False, read_data=reading.data, verified=verified, storage_root=storage_root(),
            relocate=absolute(moves), key_type=key_type,
        )  # fmt: skip
        return [told]
    if moves:
        raise InvalidRequestError("--relocate goes with the path of one snapshot", kind="bad-relocation")
    here = begun_deployment()
    troubles = Troubles()
    targets = _targets(here, snapshot, pipeline, troubles)
    unread = [Verification(trouble.pipeline, 0, 0, None, (trouble.message,)) for trouble in troubles.found()]
    if not targets:
        troubles.check()
    with Progress(console=err, transient=True, disable=not err.is_terminal) as progress:
        return unread + [
            verify_at(
                target, own=True, read_data=reading.data, verified=verified, scratch=here.scratch(),
                storage_root=here.storage_root,
            )
            for target in progress.track(targets, description="verifying")
        ]  # fmt: skip


def _targets(here: Deployment, snapshot: str | None, pipeline: str | None, troubles: Troubles) -> list[str]:
    if snapshot:
        with taken_for_id(snapshot):
            return [stored_record(here, snapshot).directory]
    names = [check_pipeline(here, pipeline)] if pipeline else here.catalog().pipelines()
    found = troubles.each(names, lambda name: completed(here, name))
    return [record.directory for of_one in found for record in reversed(of_one)]


def _aligned(number: int | None, noun: str, width: int) -> str:
    """Return a number and what it counts, as wide in every line."""
    nouns = noun if number == 1 else plural(noun)
    return f"{count(number):>{width}} {nouns:<{len(plural(noun))}}"


def _print_verified(results: list[Verification]) -> None:
    for result in results:
        state = "DAMAGED" if result.problems else "unread" if result.unread else "whole"
        amounts = "  ".join([
            _aligned(result.files, "file", 5), f"{size(result.size_bytes):>10}",
            _aligned(result.keys, "key", 12), _aligned(result.entries, "entry", 12),
        ])  # fmt: skip
        line(f"{state:<8}{amounts}  {result.directory}")
        for problem in (*result.problems, *result.unread):
            line(f"    {problem}")
    note(f"{len(results)} verified, {_damaged(results)} damaged")
