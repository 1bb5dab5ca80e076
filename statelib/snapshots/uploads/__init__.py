"""The files of one snapshot, and the files of earlier snapshots that it refers to."""
