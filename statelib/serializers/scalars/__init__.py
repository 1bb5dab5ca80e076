"""Types without parts, other than dates and times: numbers, texts, bytes, void, windows."""
