"""A run uses the API of Spark that sessions of Spark Connect have too. One file names what only the JVM of the driver
knows."""

import ast

from tests.architecture.repository import modules

ONLY_HERE = ("statelib/spark/session/either_kind.py",)
NOT_IN_CONNECT = {"sparkContext", "rdd", "foreachPartition", "_sc", "_jsc", "_jvm", "_jdf", "_jsparkSession"}
"""Attributes that a session or a DataFrame of Spark Connect does not have."""
CLASSES_OF_THE_JVM = {"SparkContext", "RDD"}


def uses(tree: ast.Module) -> list[tuple[int, str]]:
    """Return (line, name) of each use of what Spark Connect does not have."""
    hits = [(node.lineno, node.attr) for node in ast.walk(tree) if isinstance(node, ast.Attribute)]
    imported = [node for node in ast.walk(tree) if isinstance(node, ast.ImportFrom) and node.module]
    names = [(node.lineno, name.name) for node in imported for name in node.names if name.name in CLASSES_OF_THE_JVM]
    return sorted({hit for hit in hits if hit[1] in NOT_IN_CONNECT} | set(names))


def uses_in(*roots: str) -> list[str]:
    return [
        f"{path}:{line} {name}"
        for root in roots
        for path, _, tree in modules(root)
        if path not in ONLY_HERE
        for line, name in uses(tree)
    ]


def test_nothing_on_the_way_of_a_run_needs_the_jvm_of_the_driver() -> None:
    assert uses_in("statelib", "jobs", "plugins") == []


def test_a_use_of_the_jvm_is_recognised() -> None:
    tree = ast.parse("from pyspark import SparkContext\nspark.sparkContext.stop()\nframe.rdd.map(f)\nframe.count()\n")
    assert uses(tree) == [(1, "SparkContext"), (2, "sparkContext"), (3, "rdd")]
