"""Read the port that a server process prints on one of its streams."""

import re
import threading
from typing import IO


def announced_port(lines: IO[str], pattern: re.Pattern[str]) -> int:
    """Return the first group of the first line that ``pattern`` matches. Later output is discarded, so that the
    server does not wait for a reader."""
    for line in lines:
        match = pattern.search(line)
        if match:
            threading.Thread(target=lines.read, daemon=True).start()
            return int(match[1])
    raise RuntimeError("the server ended before it listened")
