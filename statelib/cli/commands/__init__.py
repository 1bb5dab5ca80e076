"""The commands, one file per subject."""
