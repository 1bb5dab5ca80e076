"""Whole runs in one process for the command line: the same steps as the tasks of a DAG."""
