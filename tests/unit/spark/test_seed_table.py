"""The text of a table from which a pipeline begins: it decides whether a seed that is repeated is the same one."""

from statelib.spark.imports.seed import SeedTable


def test_the_text_names_the_rows_of_a_database_and_no_secret() -> None:
    options = {"url": "jdbc:postgresql://u:p@db/shop", "password": "canary", "dbtable": "orders"}
    one = SeedTable("", "jdbc", options, mapping={"total": "amount"})
    assert str(one) == " jdbc total=amount option dbtable=orders option password option url"
    other = SeedTable("", "jdbc", {**options, "dbtable": "refunds"}, mapping={"total": "amount"})
    assert str(one) != str(other)
