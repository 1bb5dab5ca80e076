"""What the DAGs share: task bodies that call statelib's flows, and how their errors end a task."""
