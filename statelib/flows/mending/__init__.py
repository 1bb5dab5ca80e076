"""The correction of one interval of a state, without a replay of the intervals after it."""
