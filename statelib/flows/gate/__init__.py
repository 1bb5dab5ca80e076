"""The quality gate: collect what is stored of a checkpoint, and judge it before it is registered."""
