"""The built wheel in a new environment, beside exactly the packages that its metadata requires.

Nothing is downloaded and nothing is copied: the packages are links to those of the tests' environment, which are
pinned. A package that the metadata does not name is missing, as it would be behind ``pip install``, and one whose
version is outside the named range fails the test.
"""

import csv
import os
import subprocess
import sys
import sysconfig
import venv
import zipfile
from collections.abc import Iterator, Sequence
from importlib.metadata import Distribution, PathDistribution, distribution, distributions
from pathlib import Path

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

CHECKOUT = Path(__file__).resolve().parents[2]
NAME = "statelib"


def build(target: str, directory: Path, source: Path = CHECKOUT) -> Path:
    """Build ``wheel`` or ``sdist`` of a checkout into a directory, and return its file."""
    command = [sys.executable, "-m", "hatchling", "build", "--target", target, "--directory", str(directory)]
    subprocess.run(command, cwd=source, check=True, capture_output=True)
    (built,) = directory.glob("*.whl" if target == "wheel" else "*.tar.gz")
    return built


def install(wheel: Path, directory: Path, extras: Sequence[str] = ()) -> Path:
    """Make an environment with the wheel and its requirements for these extras, and return its directory of
    programs."""
    venv.create(directory, symlinks=True)
    site = Path(sysconfig.get_path("purelib", vars={"base": str(directory)}))
    chosen = required(wheel, extras)
    link(chosen, site)
    programs(chosen, directory / "bin")
    uv = [str(Path(sys.executable).with_name("uv")), "pip", "install", "--offline", "--no-deps", "--quiet"]
    cache = {"UV_CACHE_DIR": str(directory / "cache"), "UV_LINK_MODE": "copy"}
    subprocess.run([*uv, "--python", str(directory / "bin" / "python"), str(wheel)], env=os.environ | cache, check=True)
    return directory / "bin"


def required(wheel: Path, extras: Sequence[str]) -> dict[str, Distribution]:
    """Return the distributions that the wheel requires, directly or indirectly, by name. Assert that each version is
    within the required range."""
    with zipfile.ZipFile(wheel) as archive:
        (metadata,) = {name.split("/")[0] for name in archive.namelist() if ".dist-info/" in name}
        own = PathDistribution(zipfile.Path(archive, f"{metadata}/"))
        own_requires = own.requires or []
    results: dict[str, Distribution] = {}
    seen: set[tuple[str, str]] = set()
    open_ends = [(NAME, extra) for extra in ("", *extras)]
    while open_ends:
        name, extra = end = open_ends.pop()
        if end in seen:
            continue
        seen.add(end)
        if name != NAME:
            results[name] = distribution(name)
        for text in own_requires if name == NAME else (results[name].requires or []):
            requirement = Requirement(text)
            if requirement.marker is None or requirement.marker.evaluate({"extra": extra}):
                wanted = canonicalize_name(requirement.name)
                if wanted != NAME:
                    version = distribution(wanted).version
                    assert requirement.specifier.contains(version, prereleases=True), f"{name}: {text}, not {version}"
                open_ends += [(wanted, each) for each in ("", *requirement.extras)]
    return results


def link(chosen: dict[str, Distribution], site: Path) -> None:
    """Link the files of the distributions into ``site``: whole directories where no other distribution has a file. The
    files of ``pyspark`` are those of ``pyspark-client``, too."""
    source = Path(sysconfig.get_path("purelib"))
    others = {
        part for each in distributions() if _name(each) not in chosen for file in files(each) for part in parts(file)
    }
    linked: set[str] = set()
    for file in (file for each in chosen.values() for file in files(each)):
        whole = next((part for part in parts(file) if part not in others), file)
        if whole not in linked:
            linked.add(whole)
            (site / whole).parent.mkdir(parents=True, exist_ok=True)
            (site / whole).symlink_to(source / whole)


def files(each: Distribution) -> Iterator[str]:
    """Yield the files of a distribution, relative to the directory of packages."""
    for row in csv.reader((each.read_text("RECORD") or "").splitlines()):
        if not row[0].startswith(("..", "/")):
            yield row[0]


def parts(file: str) -> Iterator[str]:
    """Yield each directory that a file lies in, from the top, then the file."""
    end = file.find("/")
    while end >= 0:
        yield file[:end]
        end = file.find("/", end + 1)
    yield file


def programs(chosen: dict[str, Distribution], directory: Path) -> None:
    """Write the programs of the distributions; those that name their interpreter name that of the new environment."""
    old = Path(sys.executable).parent
    for each in chosen.values():
        for path, *_ in csv.reader((each.read_text("RECORD") or "").splitlines()):
            if path.startswith("../../../bin/"):
                program = directory / Path(path).name
                text = (old / program.name).read_bytes()
                program.write_bytes(text.replace(f"{old}/".encode(), f"{directory}/".encode()))
                program.chmod(0o755)


def _name(each: Distribution) -> str:
    return canonicalize_name(each.name)
