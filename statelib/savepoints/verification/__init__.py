"""The proof that a snapshot is whole: its files exist, and they contain what was written."""
