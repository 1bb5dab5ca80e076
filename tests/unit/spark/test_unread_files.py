"""The check finds the files below a path that Spark would leave out."""

import pytest

from statelib.spark.events.unread_files import unread_files


@pytest.mark.parametrize(
    ("path", "files", "unread"),
    [
        ("/d", ["/d/a", "/d/b"], []),
        ("/d", ["/d/a", "/d/00/b", "/d/00/01/c"], ["/d/00/b", "/d/00/01/c"]),
        ("file:///d//x/", ["/d/x/00/b"], ["/d/x/00/b"]),
        ("s3a://bucket/d", ["/d/h=1/a", "/d/late", "/d/h=2/sub/b"], ["/d/late"]),
        ("/day=1", ["/day=1/a", "/day=1/h=1/b"], ["/day=1/a"]),
        ("/d/*", ["/d/a", "/d/00/b", "/d/h=1/c"], []),
        ("/d/*", ["/d/00/b", "/d/00/sub/c"], ["/d/00/sub/c"]),
        ("/d/*/*.json", ["/d/00/b.json"], []),
        ("/d/one.csv", ["/d/one.csv"], []),
        ("orders/d", ["/home/orders/d/a", "/home/orders/d/00/b"], ["/home/orders/d/00/b"]),
    ],
)
def test_files_below_a_path_are_read_as_spark_reads_them(path: str, files: list[str], unread: list[str]) -> None:
    assert unread_files(path, files) == unread


def test_below_a_base_path_all_directories_of_partitions_count() -> None:
    files = ["/d/day=1/a", "/d/day=1/sub/b"]
    assert unread_files("/d/day=1", files, "/d") == []
    assert unread_files("/d/day=1", files) == ["/d/day=1/sub/b"]
