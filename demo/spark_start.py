"""How Spark's JVMs start fast on one machine: a quick compiler, a small collector, classes that are kept.

Half of what a small job costs is loading and checking classes. ``python -m demo.spark_start`` submits one job and lets
Java keep its classes in an archive (class data sharing), which belongs to this Java, this Spark and this class path.
Java allows no directory with files on that path, but Spark puts its configuration there. So with an archive
``SPARK_CONF_DIR`` names an empty directory, and what ``demo/spark`` says is said by variables.
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
KEPT = _CHECKOUT / ".work" / "spark"
FAST = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC -XX:-UsePerfData"
PATIENCE_S = 600


def variables(scratch: Path, settings: Mapping[str, str] | None = None) -> dict[str, str]:
    """Of Spark's own. ``settings`` that name another ``SPARK_CONF_DIR`` are left to say everything."""
    always = {"SPARK_LAUNCHER_OPTS": FAST, "SPARK_DAEMON_JAVA_OPTS": FAST}
    temporary = f'"-Djava.io.tmpdir={scratch}"'
    archive = None if "SPARK_CONF_DIR" in (settings or {}) else _archive()
    if archive is None or not archive.is_file():
        return always | {"SPARK_CONF_DIR": str(CONF), "SPARK_SUBMIT_OPTS": temporary}
    jvm = _jvm(f'"-XX:SharedArchiveFile={archive}"')
    said = properties() | {"spark.executor.extraJavaOptions": jvm}
    options = [temporary, jvm, *(f"'-D{name}={value}'" for name, value in said.items())]
    return always | {
        "SPARK_CONF_DIR": str(_empty_conf()),
        "SPARK_DAEMON_JAVA_OPTS": jvm,
        "SPARK_DRIVER_MEMORY": said["spark.driver.memory"],
        "SPARK_SUBMIT_OPTS": " ".join(options),
    }


def properties() -> dict[str, str]:
    """What ``spark-defaults.conf`` says, without the options of the driver's JVM."""
    lines = (line.split(None, 1) for line in (CONF / "spark-defaults.conf").read_text().splitlines())
    said = {words[0]: words[1].strip() for words in lines if len(words) == 2 and not words[0].startswith("#")}
    del said["spark.driver.extraJavaOptions"]
    return said


def make_archive() -> bool:
    """True if there is one now. Two at once make one each, and the later one counts."""
    archive = _archive()
    if archive is None or archive.is_file():
        return archive is not None
    KEPT.mkdir(parents=True, exist_ok=True)
    for old in KEPT.glob("classes-*.jsa"):
        old.unlink(missing_ok=True)
    print("Keeping the classes that Spark needs, for faster starts (once, 170 MB, about a minute) ...", flush=True)
    with TemporaryDirectory(dir=KEPT) as scratch:
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
        with (KEPT / "archive.log").open("wb") as log, suppress(subprocess.TimeoutExpired):
            subprocess.run(  # noqa: S603
                command, env=environment, stdout=log, stderr=subprocess.STDOUT, timeout=PATIENCE_S, check=False
            )
        if new.is_file():
            new.rename(archive)
    return archive.is_file()


def _jvm(archive: str) -> str:
    return f'{FAST} {archive} "-Dlog4j2.configurationFile={(CONF / "log4j2.properties").as_uri()}"'


def _archive() -> Path | None:
    """Its name tells one Java, Spark and class path from any other; None without a Java."""
    home = os.environ.get("JAVA_HOME")
    java = shutil.which("java", path=f"{home}/bin" if home else None)
    if java is None:
        return None
    binary = Path(java).resolve()
    of = (binary, binary.stat().st_mtime_ns, version("pyspark"), Path(sys.prefix), KEPT)
    return KEPT / f"classes-{hashlib.sha256(repr(of).encode()).hexdigest()[:16]}.jsa"


def _empty_conf() -> Path:
    conf = KEPT / "no-conf"
    conf.mkdir(parents=True, exist_ok=True)
    return conf


if __name__ == "__main__":
    if not make_archive():
        print(f"Spark starts without an archive of classes, which takes longer: {KEPT}/archive.log", file=sys.stderr)
