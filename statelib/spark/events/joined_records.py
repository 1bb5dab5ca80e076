"""The check that a file of JSON has one record per line, or one record if ``multiLine`` is set. Spark reads the first
record of a line, and drops the others without an error."""

import re
from collections.abc import Iterable, Iterator, Mapping

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as f

from statelib.errors import InvalidRequestError
from statelib.spark.session.job_failures import MALFORMED_RECORD, naming_what_failed

_SHOWN = 40
"""The number of characters before and after the end of the first record that the error shows."""
_SEAM = r"[}\]][^}\]{\[\"]*[{\[]"
"""The end of one value and the beginning of another one, as between two records, or two elements of a list."""
_IS_ONE = "json_array_length(concat('[', value, ']')) <=> 1"
"""The condition in SQL that a text is one value of JSON."""
_TOKEN = re.compile(r'"(?:[^"\\]|\\.)*"|\'(?:[^\'\\]|\\.)*\'|[{}\[\]]', re.DOTALL)
_NEXT = re.compile(r"[{\[]")


def check_joined_records(
    spark: SparkSession, pipeline: str, path: str, options: Mapping[str, str], option: str = "options: {{{}: {}}}"
) -> None:
    """Read the files of JSON under ``path`` as texts, and search for a record that follows another one. ``options``:
    those of the user. With a ``mode`` of his own, or an encoding, in which Spark reads no texts, nothing is searched.
    ``option``: how users write a name and a value of Spark's options.

    Raises InvalidRequestError (``malformed-record``), which names the file."""
    given = {name.lower(): value for name, value in options.items()}
    if given.get("mode", "FAILFAST").upper() != "FAILFAST" or not given.keys().isdisjoint(("encoding", "charset")):
        return
    with naming_what_failed():
        whole = given.get("multiline", "").lower() == "true"
        lines = spark.read.options(**options).text(path, wholetext=whole)
        first = _joined(lines).first()
    if first is not None:
        raise InvalidRequestError(
            f"pipeline {pipeline}: {first.file}: expected one record per line, found several: {first.text!r}",
            kind=MALFORMED_RECORD,
            hint="Spark would read the first one only: let the program that writes the files end each record with a "
            f"line break, or read only the first ones with '{option.format('mode', 'PERMISSIVE')}'",
        )


def _joined(lines: DataFrame) -> DataFrame:
    """Return the file and the text around the end of the first record of each line that has several."""
    lines = lines.where(f.col("value").rlike(_SEAM)).where(f"NOT ({_IS_ONE})")
    suspects = lines.select(f.col("_metadata.file_path").alias("file"), "value")
    return suspects.mapInArrow(_joined_texts, "file string, text string")


def _joined_texts(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    for batch in batches:
        for file, text in zip(batch["file"].to_pylist(), batch["value"].to_pylist(), strict=True):
            end = end_of_record(text)
            if _NEXT.search(text, end):
                shown = text[max(0, end - _SHOWN) : end + _SHOWN]
                yield pa.RecordBatch.from_pydict({"file": [file], "text": [shown]})


def end_of_record(text: str) -> int:
    """Return the index behind the first object or list in a text; the length of the text if it has no whole one. Texts
    may be in single quotes, as Spark allows."""
    depth = 0
    for token in _TOKEN.finditer(text):
        if token[0] in ("{", "["):
            depth += 1
        elif token[0] in ("}", "]"):
            depth -= 1
            if depth <= 0:
                return token.end()
    return len(text)
