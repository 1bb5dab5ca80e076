"""Thirty days of one workload by statelib and by other programs that keep state: what each costs."""
