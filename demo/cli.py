"""``.work/venv/bin/statelib``: the command line, by default over the state of this checkout."""

import os

from demo.places import Places, statelib_settings
from statelib.cli.main import app


def main() -> None:
    """Settings are taken all from the environment or all from here: two deployments must not mix."""
    settings = statelib_settings(Places())
    if not any(name.startswith("STATELIB_") for name in os.environ):
        os.environ.update(settings)
    app()


if __name__ == "__main__":
    main()
