"""The values of the environment that no log, message or page may show: passwords, tokens and keys."""

import os
import re
from collections.abc import Mapping
from typing import TYPE_CHECKING
from urllib.parse import quote, unquote

from statelib.telemetry.logs import SHORTEST_SECRET

if TYPE_CHECKING:
    pass


_SECRET = re.compile("SECRET|PASSWORD|PASSWD|TOKEN|ACCOUNT_KEY")
"""In the name of an environment variable whose value no log may show."""


# Up to the last @, as a password may have more of them that somebody forgot to encode.
_IN_URL = re.compile(r"://[^:/@]*:(.*)@|[?&]\w*password=([^&]*)", re.DOTALL | re.IGNORECASE)


def secrets(environ: Mapping[str, str] = os.environ) -> tuple[str, ...]:
    """Values of the environment that nobody may see, the password of the catalog's URL included."""
    found = {value for name, value in environ.items() if _SECRET.search(name)}
    found |= passwords(environ.get("STATELIB_CATALOG", ""))
    return tuple(sorted((secret for secret in found if len(secret) >= SHORTEST_SECRET), key=len, reverse=True))


def passwords(url: str) -> set[str]:
    """Of a catalog's URL: each as it is written, as it is meant, and as a library may write it."""
    written = [part for found in _IN_URL.findall(url) for part in found if part]
    return {form for text in written for form in (text, unquote(text), quote(unquote(text), safe=""))}
