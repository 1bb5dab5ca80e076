"""The change log's streams."""
