"""``.work/venv/bin/statelib``: the command line, by default for the deployment of the demonstration in this
checkout."""

import os

from demo.places import Places, statelib_settings
from statelib.cli.main import main as command_line


def main() -> None:
    """Run the command line. If any ``STATELIB_*`` variable is set, all settings come from the environment; if none is,
    all are those of the demonstration. Settings of two deployments must not mix."""
    settings = statelib_settings(Places())
    if not any(name.startswith("STATELIB_") for name in os.environ):
        os.environ.update(settings)
    command_line()


if __name__ == "__main__":
    main()
