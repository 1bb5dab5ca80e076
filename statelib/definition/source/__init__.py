"""Where the events of a data interval lie, and when they are complete."""
