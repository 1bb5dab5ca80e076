"""The parts of a pipeline file as pydantic models: the allowed keys and the form of their values."""
