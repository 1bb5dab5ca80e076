"""The effect of each event: it is applied, it takes an earlier event back, or it deletes its key."""

CHANGE = ":change"
"""The column of the events with :data:`APPLIED` (also null), :data:`RETRACTED` or :data:`DELETED`. No declared column
can have this name."""
APPLIED, DELETED, RETRACTED = 1, 0, -1
