"""Spark's side: reading the interval, moving events to the owner of their key group, one worker a subtask."""
