"""One file a story; ``wiring`` alone names concrete classes."""
