"""Sketches in the form of Apache DataSketches, and bitmaps in that of Spark, computed on whole columns."""
