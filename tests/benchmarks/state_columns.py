"""The columns of the state that all contenders keep. This module imports nothing, because imports are measured."""

COLUMNS = ["key", "events", "amount", "text", "ts"]
