"""The publishing of registered checkpoints as tables."""
