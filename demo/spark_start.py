"""Settings with which Spark's JVMs start fast on one machine: a quick compiler, a small collector, archived classes.

A small job spends half of its time on loading and checking classes. ``python -m demo.spark_start`` submits one job and
lets Java write its classes to an archive (class data sharing), which is valid for this Java, this Spark and this class
path. Java allows no directory with files on that path, but Spark puts its configuration directory there. So with an
archive, ``SPARK_CONF_DIR`` names an empty directory, and variables contain the settings of ``demo/spark``.
"""

import hashlib
import os
import shutil
import subprocess
import sys
from collections.abc import Mapping
from contextlib import suppress
from importlib.metadata import version
from pathlib import Path
from tempfile import TemporaryDirectory

_CHECKOUT = Path(__file__).resolve().parent.parent
CONF = _CHECKOUT / "demo" / "spark"
ARCHIVE_DIRECTORY = _CHECKOUT / ".work" / "spark"
FAST = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC -XX:-UsePerfData"
PATIENCE_S = 600


def variables(scratch: Path, settings: Mapping[str, str] | None = None) -> dict[str, str]:
    """Return the environment variables of Spark. With ``settings`` that name another ``SPARK_CONF_DIR``, its files
    decide, and no archive is used."""
    common = {"SPARK_LAUNCHER_OPTS": FAST, "SPARK_DAEMON_JAVA_OPTS": FAST}
    temporary = f'"-Djava.io.tmpdir={scratch}"'
    archive = None if "SPARK_CONF_DIR" in (settings or {}) else _made_archive()
    if archive is None:
        return common | {"SPARK_CONF_DIR": str(CONF), "SPARK_SUBMIT_OPTS": temporary}
    jvm = _jvm(f'"-XX:SharedArchiveFile={archive}"')
    defaults = properties() | {"spark.executor.extraJavaOptions": jvm}
    options = [temporary, jvm, *(f"'-D{name}={value}'" for name, value in defaults.items())]
    return common | {
        "SPARK_CONF_DIR": str(_empty_conf()),
        "SPARK_DAEMON_JAVA_OPTS": jvm,
        "SPARK_DRIVER_MEMORY": defaults["spark.driver.memory"],
        "SPARK_SUBMIT_OPTS": " ".join(options),
    }


def fast_start() -> dict[str, str]:
    """Return the variables with which JVMs of PySpark start fast, and which change no setting of Spark."""
    archive = _made_archive()
    quick = {"SPARK_LAUNCHER_OPTS": FAST, "SPARK_SUBMIT_OPTS": FAST}
    if archive is None:
        return quick
    # Java prints a warning where the class path is another one, on the output that a caller may read.
    options = f'{FAST} -Xlog:disable "-XX:SharedArchiveFile={archive}"'
    return quick | {"SPARK_CONF_DIR": str(_empty_conf()), "SPARK_SUBMIT_OPTS": options}


def properties() -> dict[str, str]:
    """Return the properties of ``spark-defaults.conf``, without the options of the driver's JVM."""
    lines = (line.split(None, 1) for line in (CONF / "spark-defaults.conf").read_text().splitlines())
    defaults = {words[0]: words[1].strip() for words in lines if len(words) == 2 and not words[0].startswith("#")}
    del defaults["spark.driver.extraJavaOptions"]
    return defaults


def make_archive() -> bool:
    """Make the archive unless it exists, and return whether it exists now. Of two processes that make it at once, the
    later one replaces the archive of the other."""
    archive = _archive()
    if archive is None or archive.is_file():
        return archive is not None
    ARCHIVE_DIRECTORY.mkdir(parents=True, exist_ok=True)
    for old in ARCHIVE_DIRECTORY.glob("classes-*.jsa"):
        old.unlink(missing_ok=True)
    print("Archiving the classes that Spark needs, for faster starts (once, 170 MB, about a minute) ...", flush=True)
    with TemporaryDirectory(dir=ARCHIVE_DIRECTORY) as scratch:
        new = Path(scratch) / "classes.jsa"
        environment = {n: v for n, v in os.environ.items() if not n.startswith(("SPARK_", "PYSPARK_", "PYTHON"))} | {
            "SPARK_CONF_DIR": str(_empty_conf()),
            "SPARK_LOCAL_IP": "127.0.0.1",
            "SPARK_LOCAL_DIRS": scratch,
            "SPARK_SUBMIT_OPTS": _jvm(f'"-XX:ArchiveClassesAtExit={new}" -Dspark.ui.enabled=false'),
            "PYSPARK_PYTHON": sys.executable,
        }
        submit = str(Path(sys.executable).parent / "spark-submit")
        command = [submit, "--master", "local[2]", str(_CHECKOUT / "demo" / "first_job.py"), f"{scratch}/rows"]
        with (ARCHIVE_DIRECTORY / "archive.log").open("wb") as log, suppress(subprocess.TimeoutExpired):
            subprocess.run(  # noqa: S603
                command, env=environment, stdout=log, stderr=subprocess.STDOUT, timeout=PATIENCE_S, check=False
            )
        if new.is_file():
            new.rename(archive)
    return archive.is_file()


def _jvm(archive: str) -> str:
    """Return the options of a JVM. ``archive``: the option that names the archive to read or to write."""
    return f'{FAST} {archive} "-Dlog4j2.configurationFile={(CONF / "log4j2.properties").as_uri()}"'


def _made_archive() -> Path | None:
    """Return the path of the archive; None if it was not made."""
    archive = _archive()
    return archive if archive is not None and archive.is_file() else None


def _archive() -> Path | None:
    """Return the path of the archive, which may not exist yet; None without a Java. The name depends on the Java, the
    Spark and the class path for which the archive is valid."""
    home = os.environ.get("JAVA_HOME")
    java = shutil.which("java", path=f"{home}/bin" if home else None)
    if java is None:
        return None
    binary = Path(java).resolve()
    identity = (binary, binary.stat().st_mtime_ns, version("pyspark"), Path(sys.prefix), ARCHIVE_DIRECTORY)
    return ARCHIVE_DIRECTORY / f"classes-{hashlib.sha256(repr(identity).encode()).hexdigest()[:16]}.jsa"


def _empty_conf() -> Path:
    """Return an empty configuration directory, which is created if it is missing."""
    conf = ARCHIVE_DIRECTORY / "no-conf"
    conf.mkdir(parents=True, exist_ok=True)
    return conf


if __name__ == "__main__":
    if not make_archive():
        print(
            f"Spark starts without an archive of classes, which takes longer: {ARCHIVE_DIRECTORY}/archive.log",
            file=sys.stderr,
        )
