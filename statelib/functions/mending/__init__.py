"""The effect of each data interval on a state, and the correction of one interval after the others."""
