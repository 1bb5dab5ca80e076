"""The live backend that a restore makes from old handles."""
