"""The checkpoint story: the next interval, begin, snapshot, the facts that the gate judges, register or abort."""
