"""The aspects of a type: what each type provides to this room, and the tools that types share for it."""
