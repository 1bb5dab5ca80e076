"""Types without parts: numbers, strings, dates and times, windows."""
