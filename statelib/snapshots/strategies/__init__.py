"""The strategies of snapshots, one file each. Their contract is ``statelib.snapshots.strategy``."""
