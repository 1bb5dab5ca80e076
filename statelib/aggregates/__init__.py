"""The aggregates that a pipeline file can name, and the computation of each on whole columns."""
