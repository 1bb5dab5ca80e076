"""The values of the environment that no log, message or page may show: passwords, tokens and keys."""

import re
from collections.abc import Mapping
from urllib.parse import quote, unquote

from statelib.telemetry.logs import SHORTEST_SECRET

_SECRET = re.compile("SECRET|PASSWORD|PASSWD|TOKEN|ACCOUNT_KEY", re.IGNORECASE)
"""Found in the name of an environment variable whose value is secret."""
# Up to the last @, because a password may contain @ characters that its user did not percent-encode.
_IN_URL = re.compile(r"://[^:/@]*:(.*)@|[?&]\w*password=([^&]*)", re.DOTALL | re.IGNORECASE)


def secrets(environ: Mapping[str, str]) -> tuple[str, ...]:
    """Return the secret values of the environment, the longest first, with the passwords in the catalog's URL. Values
    shorter than :data:`~statelib.telemetry.logs.SHORTEST_SECRET` are left out."""
    values = {value for name, value in environ.items() if _SECRET.search(name)}
    values |= passwords(environ.get("STATELIB_CATALOG", ""))
    return tuple(sorted((secret for secret in values if len(secret) >= SHORTEST_SECRET), key=len, reverse=True))


def passwords(url: str) -> set[str]:
    """Return the passwords in a catalog's URL, each in three forms: as written, percent-decoded, and percent-encoded as
    a library may write it."""
    written = [part for groups in _IN_URL.findall(url) for part in groups if part]
    return {form for text in written for form in (text, unquote(text), quote(unquote(text), safe=""))}
