"""Dates and times: the classes of java.time, and those of java.util and java.sql."""
