"""The import of the installed PySpark, in place of the zip that Spark puts at the beginning of Python's path.

Modules from a zip are compiled at each import, and the zip's table of contents is read again at the start of each Spark
task (``importlib.invalidate_caches``). The latter is also true for Spark's own jar, which Spark adds to the path.
"""

import sys
from pathlib import Path


def prefer_installed() -> None:
    """Replace Spark's zips in ``sys.path`` by directories with the same packages, and remove Spark's jar. A zip stays
    if there is no such directory. This must be called before PySpark is imported."""
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
    """Return the directory with the modules of ``.../python/lib/pyspark.zip``; None if there is none. In a distribution
    of Spark it is ``.../python``. In an installed wheel it is the directory that contains the package ``pyspark``."""
    python = path.parent.parent
    return next((d for d in (python, python.parent.parent) if (d / "pyspark" / "daemon.py").is_file()), None)


def _replace(path: Path, directory: Path, package: str) -> None:
    """Replace the zip ``path`` in ``sys.path`` by the directory, if the directory has the package. If the directory is
    in ``sys.path`` already, the zip is only removed."""
    entry, replacement = str(path), str(directory)
    if entry in sys.path and (directory / package / "__init__.py").is_file():
        at = sys.path.index(entry)
        sys.path[at : at + 1] = [] if replacement in sys.path else [replacement]


def _is_spark_jar(path: Path) -> bool:
    return path.name.startswith("spark-core_") and path.suffix == ".jar"
