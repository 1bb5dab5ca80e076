"""Reading and replaying the change log over materialised state."""
