"""Reading a part of all files, chosen so that the same words choose the same files: for storage too large to read."""

import re
from collections.abc import Iterable
from dataclasses import dataclass

from statelib.errors import InvalidRequestError
from statelib.wire.checksum import content_hash

_SPACE = 1 << 64


@dataclass(frozen=True)
class Sample:
    """Of all hashes of file URIs those in [``start``, ``end``), out of 2**64. ``seed`` mixes the hashes."""

    start: int
    end: int
    seed: str

    @property
    def is_all(self) -> bool:
        return (self.start, self.end) == (0, _SPACE)

    def __contains__(self, uri: str) -> bool:
        return self.start <= _place(uri, self.seed) < self.end


def picked(uris: Iterable[str], text: str, seed: str) -> list[str]:
    """Those of them in :func:`sample`, and of a percentage at least one, if there are any. Raises as it does."""
    chosen, ordered = sample(text, seed), sorted(uris, key=lambda uri: _place(uri, seed))
    found = [uri for uri in ordered if uri in chosen]
    return found or (ordered[:1] if text.endswith("%") else [])


def seed_of(text: str, fresh: str) -> str:
    """The seed, where nobody says one: ``fresh`` of a percentage; parts have the same, to be all files together."""
    return "" if "/" in text else fresh


def _place(uri: str, seed: str) -> int:
    return content_hash(f"{seed}\n{uri}".encode()).xxh3


def sample(text: str, seed: str) -> Sample:
    """``5%``: about so much of all files, others with each seed. ``3/20``: the third of twenty parts; with one seed
    the parts have every file exactly once. Raises InvalidRequestError (``bad-subset``)."""
    percent = re.fullmatch(r"([0-9]{1,3}(?:\.[0-9]{1,6})?)%", text)
    if percent and 0 < float(percent[1]) <= 100:
        return Sample(0, int(_SPACE * float(percent[1]) / 100), seed)
    part = re.fullmatch(r"([0-9]{1,6})/([0-9]{1,6})", text)
    if part and 1 <= int(part[1]) <= int(part[2]):
        number, parts = int(part[1]), int(part[2])
        return Sample(_SPACE * (number - 1) // parts, _SPACE * number // parts, seed)
    raise InvalidRequestError(
        f"subset {text!r}: expected a percentage or a part", kind="bad-subset", hint="such as 5%, or 3/20"
    )
