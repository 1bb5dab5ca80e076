"""Files in JSON, CSV and Parquet: damaged records, columns that a day does not have, headers in another order."""

import gzip
import json
from collections.abc import Callable
from datetime import UTC, date, datetime
from pathlib import Path
from textwrap import indent
from typing import Any

import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyarrow import orc
from pyspark.sql import SparkSession

from statelib.flows.views.inspection import resolve
from statelib.flows.wiring import Deployment
from tests.integration.shop_cli import call, refused, said
from tests.support.worlds import new_deployment

PIPELINE = """\
name: orders
schedule: {{cron: "@daily", start: 2026-01-01}}
source:
{source}
key: customer
on_null_key: drop
states:
  total: {{kind: value, value: {{agg: sum, of: amount}}}}
backend: heap
"""
JSON = """\
format: json
path: "{data}/{start:%Y-%m-%d}.json"
where: "payload IS NOT NULL"
columns:
  customer: {expr: payload.customer, type: string}
  amount: {expr: payload.amount, type: long}
"""
CSV = """\
format: csv
path: "{data}/{start:%Y-%m-%d}"
options: {header: true}
columns:
  customer: string
  amount: {expr: "CAST(amount AS long)", type: long}
"""
PARQUET = """\
path: "{data}/{start:%Y-%m-%d}.parquet"
columns: {customer: string, amount: long}
"""
ENVELOPES = """\
format: json
path: "{data}/{start:%Y-%m-%d}.json"
where: "payload IS NOT NULL"
changes: {op: payload.op, before: payload.before, after: payload.after}
columns: {customer: string, amount: long}
"""
SCHEMA = """\
file_schema: >
  payload STRUCT<op: STRING, before: STRUCT<customer: STRING, amount: BIGINT>,
  after: STRUCT<customer: STRING, amount: BIGINT>>
"""


@pytest.fixture
def deployment(tmp_path: Path, spark: SparkSession) -> Deployment:
    for name in ("pipelines", "data"):
        (tmp_path / name).mkdir()
    return new_deployment(tmp_path, tmp_path / "data", tmp_path / "pipelines")


def write_pipeline(deployment: Deployment, source: str) -> None:
    text = PIPELINE.format(source=indent(source, "  "))
    (Path(deployment.pipelines_directory) / "orders.yaml").write_text(text)


def write_json(deployment: Deployment, day: int, *lines: str) -> None:
    (Path(deployment.data) / f"{date(2026, 1, day)}.json").write_text("".join(f"{line}\n" for line in lines))


def payload(**fields: Any) -> str:
    return json.dumps({"payload": fields})


def totals(deployment: Deployment) -> dict[str, int]:
    return {row["key"]: row["value"] for row in resolve(deployment, "orders/head").to_arrow("total").to_pylist()}


def test_a_damaged_line_of_json_fails_the_run_unless_the_file_leaves_it_out(deployment: Deployment) -> None:
    write_json(deployment, 1, payload(customer="a", amount=1), '{"payload": {"customer": "a", "amo', "")
    write_pipeline(deployment, JSON)
    message = call(deployment, "run", "orders").stderr
    assert "2026-01-01.json: the source has a record that cannot be read as a whole\n" in message
    assert "options: {mode: DROPMALFORMED}" in message
    write_pipeline(deployment, JSON + "options: {mode: DROPMALFORMED}\n")
    said(deployment, "run", "orders")
    assert totals(deployment) == {"a": 1}


@pytest.mark.parametrize(
    ("lines", "between"),
    [(False, ""), (False, ","), (False, ";"), (False, "\0"), (True, "\n"), (True, ",\n")],
    ids=["in one line", "by commas", "by semicolons", "by NUL", "in one file", "in one file by commas"],
)
def test_several_records_of_json_of_which_spark_reads_the_first_fail_the_run(
    deployment: Deployment, lines: bool, between: str
) -> None:
    one = payload(customer="a", amount=1, note="a text with }{ is no other record", list=[{"n": 1}, {"n": 2}])
    source = JSON + ("options: {multiLine: true}\n" if lines else "")
    write_pipeline(deployment, source)
    write_json(deployment, 1, one + between.strip("\0\n"))
    said(deployment, "run", "orders")
    write_json(deployment, 2, one + between + one)
    message = refused(deployment, "run", "orders")
    assert "2026-01-02.json: expected one record per line, found several: " in message
    assert "{mode: PERMISSIVE}" in call(deployment, "run", "orders").stderr
    write_pipeline(deployment, JSON)
    write_json(deployment, 2, one, one)
    said(deployment, "run", "orders")
    assert totals(deployment) == {"a": 3}


@pytest.mark.parametrize("lines", ["a,1,x\nb,23", "a,1,x\nb,23,y,z"], ids=["cut", "longer"])
def test_a_line_of_csv_with_other_fields_than_the_header_fails_the_run(deployment: Deployment, lines: str) -> None:
    write_pipeline(deployment, CSV)
    (day := Path(deployment.data) / "2026-01-01").mkdir()
    (day / "part.csv.gz").write_bytes(gzip.compress(f"customer,amount,note\n{lines}".encode()))
    message = refused(deployment, "run", "orders")
    assert "part.csv.gz has a record that cannot be read as a whole" in message


def test_files_of_csv_with_columns_in_another_order_are_refused(deployment: Deployment) -> None:
    write_pipeline(deployment, CSV)
    (day := Path(deployment.data) / "2026-01-01").mkdir()
    (day / "a.csv").write_text("customer,amount\n1,20\n2,30\n")
    (day / "b.csv").write_text("amount,customer\n7,1\n")
    assert "CSV header does not conform to the schema" in refused(deployment, "run", "orders")


def test_a_day_without_rows_needs_the_schema_of_the_files(deployment: Deployment) -> None:
    write_json(deployment, 1, payload(op="c", before=None, after={"customer": "a", "amount": 2}))
    write_json(deployment, 2)
    write_json(deployment, 3, payload(op="d", before={"customer": "a", "amount": 2}, after=None))
    write_pipeline(deployment, ENVELOPES)
    said(deployment, "run", "orders")
    message = call(deployment, "run", "orders").stderr
    assert "source.where: 'payload IS NOT NULL'" in message
    assert "declare the columns of the files in source.file_schema" in message
    write_pipeline(deployment, ENVELOPES + SCHEMA)
    said(deployment, "run", "orders")
    assert totals(deployment) == {"a": 2}
    said(deployment, "run", "orders")
    assert totals(deployment) == {"a": 0}


def test_a_day_whose_rows_have_only_nulls_in_a_struct_needs_the_schema_of_the_files(deployment: Deployment) -> None:
    rows_now = JSON.replace("payload.", "payload.after.")
    write_json(deployment, 1, payload(op="d", before={"customer": "a", "amount": 2}, after=None))
    write_pipeline(deployment, rows_now)
    message = call(deployment, "run", "orders").stderr
    assert "INVALID_EXTRACT_BASE_FIELD_TYPE" in message
    assert "declare the columns of the files in source.file_schema" in message
    write_pipeline(deployment, rows_now + SCHEMA)
    said(deployment, "run", "orders")
    assert totals(deployment) == {}, "the only event has no key"


def test_a_value_that_does_not_fit_the_schema_of_the_files_fails_the_run(deployment: Deployment) -> None:
    write_json(deployment, 1, payload(op="c", before=None, after={"customer": "a", "amount": "many"}))
    write_pipeline(deployment, ENVELOPES + SCHEMA)
    assert "has a record that cannot be read as a whole" in refused(deployment, "run", "orders")
    write_pipeline(deployment, ENVELOPES + "file_schema: payload STRUKT<")
    assert "source.file_schema: [PARSE_SYNTAX_ERROR]" in refused(deployment, "run", "orders")
    write_pipeline(deployment, ENVELOPES.replace("json", "delta", 1) + SCHEMA)
    assert "json, csv, avro, xml; found delta" in refused(deployment, "run", "orders")


@pytest.mark.parametrize("more", ["customer: string", "customer: {expr: customer, type: string}"])
def test_a_column_of_the_path_has_the_same_values_on_each_day(deployment: Deployment, more: str) -> None:
    """Spark alone would take the directories 01 and 2 of one day for numbers."""
    columns = f"columns: {{{more}, hour: int, amount: long}}"
    write_pipeline(deployment, f'path: "{{data}}/{{start:%Y-%m-%d}}"\nwhere: "day < \'{{end}}\'"\n{columns}\n')
    for day, customers in (("2026-01-01", ["01", "2"]), ("2026-01-02", ["01", "A7"])):
        for customer in customers:
            directory = Path(deployment.data) / day / f"customer={customer}" / "hour=05" / f"day={day}"
            directory.mkdir(parents=True)
            pl.DataFrame({"amount": [1]}).write_parquet(directory / "part.parquet")
    said(deployment, "run", "orders", "--end", "2026-01-03")
    assert totals(deployment) == {"01": 2, "2": 1, "A7": 1}
    third = Path(deployment.data) / "2026-01-03" / "customer=01" / "hour=late" / "day=2026-01-03"
    third.mkdir(parents=True)
    pl.DataFrame({"amount": [1]}).write_parquet(third / "part.parquet")
    assert '\'late\' of the type "STRING" cannot be cast to "INT"' in refused(deployment, "run", "orders")


def test_older_files_of_parquet_may_lack_a_column_that_the_schema_of_the_files_has(deployment: Deployment) -> None:
    pl.DataFrame({"customer": ["a"]}).write_parquet(Path(deployment.data) / "2026-01-01.parquet")
    frame = pl.DataFrame({"customer": ["a"], "amount": [5]})
    frame.write_parquet(Path(deployment.data) / "2026-01-02.parquet")
    write_pipeline(deployment, PARQUET)
    assert "has no column amount" in refused(deployment, "run", "orders")
    write_pipeline(deployment, PARQUET + "file_schema: customer STRING, amount BIGINT\n")
    said(deployment, "run", "orders", "--end", "2026-01-03")
    assert totals(deployment) == {"a": 5}
    frame.cast({"amount": pl.String}).write_parquet(Path(deployment.data) / "2026-01-03.parquet")
    assert "2026-01-03.parquet cannot be read" in refused(deployment, "run", "orders")


@pytest.mark.parametrize(("file_format", "write"), [("parquet", pq.write_table), ("orc", orc.write_table)])
def test_a_file_without_a_field_of_a_struct_is_refused_unless_the_schema_has_it(
    deployment: Deployment, file_format: str, write: Callable[[pa.Table, Path], None]
) -> None:
    (directory := Path(deployment.data) / "2026-01-01").mkdir()
    for name in ("amount", "total"):
        write(pa.table({"row": [{"customer": "a", name: 5}]}), directory / f"{name}.{file_format}")
    nested = f"""\
format: {file_format}
path: "{{data}}/{{start:%Y-%m-%d}}"
columns: {{customer: {{expr: row.customer, type: string}}, amount: {{expr: row.amount, type: long}}}}
"""
    write_pipeline(deployment, nested)
    refusal = f"total.{file_format} has no column row.amount; it has row.customer, row.total"
    assert refusal in refused(deployment, "run", "orders")
    write_pipeline(deployment, nested + 'file_schema: "row STRUCT<customer: STRING, amount: BIGINT>"\n')
    said(deployment, "run", "orders")
    assert totals(deployment) == {"a": 5}


def test_files_of_orc_with_other_values_than_spark_reads_are_refused(deployment: Deployment) -> None:
    (directory := Path(deployment.data) / "2026-01-01").mkdir()
    schema = "format: orc\nfile_schema: customer STRING, amount BIGINT\n"
    write_pipeline(deployment, PARQUET.replace(".parquet", "") + schema)
    orc.write_table(pa.table({"customer": ["a"], "amount": [5]}), directory / "a.orc")
    for amount, named in (("7", "string"), (7.5, "double")):
        orc.write_table(pa.table({"customer": ["b"], "amount": [amount]}), directory / "b.orc")
        refusal = f"b.orc: column amount is {named}, which Spark would read as bigint"
        assert refusal in refused(deployment, "run", "orders")
    orc.write_table(pa.table({"customer": ["b"], "amount": pa.array([7], pa.int16())}), directory / "b.orc")
    said(deployment, "run", "orders")
    assert totals(deployment) == {"a": 5, "b": 7}


@pytest.mark.parametrize(
    ("name", "options", "text"),
    [
        ("a.json", "format: json", '{"customer": "a", "at": "2026-07-01 10:00:00"}\n'),
        ("a.csv", "format: csv\noptions: {header: true}", "customer,at\na,2026-07-01 10:00:00\n"),
        ("a.csv", "format: csv\noptions: {header: true, timeZone: UTC}", "customer,at\na,2026-07-01 08:00:00\n"),
    ],
)
def test_times_without_an_offset_are_in_the_zone_of_the_source(
    deployment: Deployment, name: str, options: str, text: str
) -> None:
    source = """
path: "{data}/{start:%Y-%m-%d}"
time_zone: Europe/Berlin
file_schema: "customer STRING, at TIMESTAMP"
columns:
  customer: string
  at: instant
  amount: {expr: unix_seconds(at), type: long}
"""
    write_pipeline(deployment, options + source)
    (day := Path(deployment.data) / "2026-01-01").mkdir()
    (day / name).write_text(text)
    said(deployment, "run", "orders")
    assert totals(deployment) == {"a": int(datetime(2026, 7, 1, 8, tzinfo=UTC).timestamp())}


@pytest.mark.parametrize("file_format", ["json", "csv", "parquet", "text"])
def test_a_day_without_files_is_missing_even_if_its_columns_are_known(deployment: Deployment, file_format: str) -> None:
    schema = "" if file_format == "text" else 'file_schema: "value STRING, amount BIGINT"\n'
    source = f"""
format: {file_format}
path: "{{data}}/{{start:%Y-%m-%d}}"
{schema}columns:
  customer: {{expr: value, type: string}}
  amount: {{expr: length(value), type: long}}
"""
    (day := Path(deployment.data) / "2026-01-01").mkdir()
    (day / "_SUCCESS").touch()
    write_pipeline(deployment, source)
    message = call(deployment, "run", "orders").stderr
    assert "2026-01-01 cannot be read: UNABLE_TO_INFER_SCHEMA\n" in message
    assert "'on_missing: empty'" in message
    write_pipeline(deployment, source + "ready: {marker: _SUCCESS}\n")
    said(deployment, "run", "orders")
    assert totals(deployment) == {}


def test_a_row_may_have_fields_that_are_no_words_of_sql(deployment: Deployment) -> None:
    row = '"row<order-id: int>"'
    columns = f"columns: {{customer: string, amount: long, a: {row}, b: {{expr: a, type: {row}}}}}\n"
    schema = 'file_schema: "customer STRING, amount LONG, a STRUCT<`order-id`: INT>"\non_missing: empty\n'
    write_pipeline(deployment, f'format: json\npath: "{{data}}/{{start:%Y-%m-%d}}.json"\n{schema}{columns}')
    write_json(deployment, 2, '{"customer": "a", "amount": 1, "a": {"order-id": 7}}')
    said(deployment, "run", "orders", "--end", "2026-01-03")
    assert totals(deployment) == {"a": 1}


def test_times_in_a_row_are_refused_if_they_need_the_zone_of_the_source(deployment: Deployment) -> None:
    source = f"{PARQUET.splitlines()[0]}\ntime_zone: Europe/Berlin\ncolumns:\n  customer: string\n  amount: long\n"
    times = '  times: {{expr: "struct({})", type: "row<at: instant>"}}\n'
    table = pl.DataFrame({"customer": ["a"], "amount": [1], "at": [datetime(2026, 1, 1, 12)]})
    table.cast({"at": pl.Datetime("us")}).write_parquet(Path(deployment.data) / "2026-01-01.parquet")
    write_pipeline(deployment, source + times.format("at"))
    message = refused(deployment, "run", "orders")
    assert "columns.times is struct<at:timestamp_ntz>, declared is row<at: instant>: times in a list" in message
    write_pipeline(deployment, source + times.format("to_utc_timestamp(at, 'Europe/Berlin') AS at"))
    said(deployment, "run", "orders")


def test_the_reason_of_spark_is_named_if_files_are_there(deployment: Deployment) -> None:
    write_json(deployment, 1, '{"customer": "a", "Customer": "b", "amount": 1}')
    write_pipeline(deployment, JSON.replace("payload.", "").replace("payload IS", "customer IS"))
    message = call(deployment, "run", "orders").stderr
    assert "cannot be read: [COLUMN_ALREADY_EXISTS] The column `customer` already exists" in message
    assert "on_missing" not in message, "no file is missing"


def test_columns_may_have_names_that_are_no_words_of_sql(deployment: Deployment) -> None:
    before, after = ({"user.id": user, "it's": amount, "a`b": "x"} for user, amount in (("a", 1), ("b", 5)))
    write_json(deployment, 1, payload(op="c", before=None, after=before), payload(op="u", before=before, after=after))
    write_pipeline(deployment, ENVELOPES.replace("{customer: string, amount: long}", "{user.id: string, it's: long}"))
    file = Path(deployment.pipelines_directory) / "orders.yaml"
    text = file.read_text().replace("key: customer", "key: user.id").replace("of: amount", "of: it's")
    file.write_text(text.replace("it's: long", "it's: long, a`b: string"))
    said(deployment, "run", "orders")
    assert totals(deployment) == {"a": 0, "b": 5}


def test_times_in_nanoseconds_are_refused_with_the_ways_to_read_them(deployment: Deployment) -> None:
    write_pipeline(deployment, PARQUET.replace("amount: long", "amount: long, at: instant"))
    frame = pl.DataFrame({"customer": ["a"], "amount": [1], "at": [datetime(2026, 1, 1, tzinfo=UTC)]})
    frame.cast({"at": pl.Datetime("ns", "UTC")}).write_parquet(Path(deployment.data) / "2026-01-01.parquet")
    message = call(deployment, "run", "orders").stderr
    assert "cannot be read: [PARQUET_TYPE_ILLEGAL]" in message
    assert "coerce_timestamps='us'" in message
    assert "on_missing" not in message
