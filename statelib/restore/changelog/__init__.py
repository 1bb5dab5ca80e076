"""The change log over materialised state, read and replayed."""
