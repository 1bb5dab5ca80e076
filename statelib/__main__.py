"""``python -m statelib``."""

from statelib.cli.main import app

app()
