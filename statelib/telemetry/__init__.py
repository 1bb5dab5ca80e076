"""What is told to whoever watches: metrics through a port, log lines that carry their checkpoint, no secrets."""
