"""PySpark as it is installed, instead of as the zip that Spark puts in front of it on Python's path.

Python compiles what it imports from a zip each time, and reads the zip's table of contents again at the start of each
Spark task (``importlib.invalidate_caches``); so it does with Spark's own jar, which Spark puts there as well.
"""

import sys
from pathlib import Path


def prefer_installed() -> None:
    """Changes ``sys.path`` before anything of PySpark is imported. A zip stays where no directory has the same."""
    before = set(sys.path)
    zips = [path for path in map(Path, sys.path) if path.name == "pyspark.zip" and path.parent.name == "lib"]
    for path in zips:
        directory = _directory(path)
        if directory is not None:
            _replace(path, directory, "pyspark")
            for other in path.parent.glob("py4j-*-src.zip"):
                _replace(other, directory, "py4j")
    sys.path[:] = [entry for entry in sys.path if not _is_spark_jar(Path(entry))]
    for entry in before.difference(sys.path):
        sys.path_importer_cache.pop(entry, None)


def _directory(path: Path) -> Path | None:
    """Where the modules of ``.../python/lib/pyspark.zip`` lie as well: beside ``lib`` in a distribution of Spark, in
    the directory that has the package ``pyspark``, of which ``python/lib`` is a part, if it came as a wheel."""
    python = path.parent.parent
    return next((d for d in (python, python.parent.parent) if (d / "pyspark" / "daemon.py").is_file()), None)


def _replace(path: Path, directory: Path, package: str) -> None:
    """Only where the directory has the package; it does not come forward if it is on the path already."""
    entry, there = str(path), str(directory)
    if entry in sys.path and (directory / package / "__init__.py").is_file():
        at = sys.path.index(entry)
        sys.path[at : at + 1] = [] if there in sys.path else [there]


def _is_spark_jar(path: Path) -> bool:
    return path.name.startswith("spark-core_") and path.suffix == ".jar"
