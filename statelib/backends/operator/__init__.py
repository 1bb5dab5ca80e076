"""The live operator state of a subtask, and what its user code keeps and emits besides the keyed state."""
