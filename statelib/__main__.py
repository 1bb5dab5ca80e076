"""``python -m statelib``."""

from statelib.cli.main import main

main()
