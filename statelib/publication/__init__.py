"""Tables that checkpoints are published to: the port of a target, and a target per format."""
