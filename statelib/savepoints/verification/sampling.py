"""The choice of a sample of files, for storage that is too large to be read as a whole.

The choice depends only on the text that describes the sample, the seed and the URIs of the files, so it can be
repeated.
"""

import re
from collections.abc import Iterable
from dataclasses import dataclass

from statelib.errors import InvalidRequestError
from statelib.wire.checksum import content_hash

_HASHES = 1 << 64


@dataclass(frozen=True)
class Sample:
    """The files whose hash is in [``start``, ``end``). The hash, from 0 to 2**64 - 1, is that of ``seed`` and the
    file's URI, so another seed chooses other files."""

    start: int
    end: int
    seed: str

    @property
    def is_all(self) -> bool:
        return (self.start, self.end) == (0, _HASHES)

    def __contains__(self, uri: str) -> bool:
        return self.start <= _hash(uri, self.seed) < self.end


def picked(uris: Iterable[str], text: str, seed: str) -> list[str]:
    """Return the URIs that are in the sample that ``text`` describes, ordered by their hash. A percentage chooses at
    least one URI, unless ``uris`` is empty. Raises InvalidRequestError (``bad-subset``) as :func:`sample` does."""
    chosen, ordered = sample(text, seed), sorted(uris, key=lambda uri: _hash(uri, seed))
    sampled = [uri for uri in ordered if uri in chosen]
    return sampled or (ordered[:1] if text.endswith("%") else [])


def seed_of(text: str, fresh: str) -> str:
    """Return the seed of a sample for which the user gave none: ``fresh`` for a percentage such as ``5%``, and a fixed
    one for a part such as ``3/20``, because all parts together cover every file only if they have the same seed."""
    return "" if "/" in text else fresh


def _hash(uri: str, seed: str) -> int:
    return content_hash(f"{seed}\n{uri}".encode()).xxh3


def sample(text: str, seed: str) -> Sample:
    """Return the sample that ``text`` describes. ``5%``: about five percent of all files; another seed chooses other
    files. ``3/20``: the third of twenty parts; with the same seed, each file is in exactly one of the parts.

    Raises InvalidRequestError (``bad-subset``)."""
    percent = re.fullmatch(r"([0-9]{1,3}(?:\.[0-9]{1,6})?)%", text)
    if percent and 0 < float(percent[1]) <= 100:
        return Sample(0, int(_HASHES * float(percent[1]) / 100), seed)
    part = re.fullmatch(r"([0-9]{1,6})/([0-9]{1,6})", text)
    if part and 1 <= int(part[1]) <= int(part[2]):
        number, parts = int(part[1]), int(part[2])
        return Sample(_HASHES * (number - 1) // parts, _HASHES * number // parts, seed)
    raise InvalidRequestError(
        f"subset {text!r}: expected a percentage or a part", kind="bad-subset", hint="such as 5%, or 3/20"
    )
