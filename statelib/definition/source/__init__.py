"""The paths of the events of a data interval, and the conditions for the events to be complete."""
