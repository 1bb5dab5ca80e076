"""Search for a secret in files and messages, as it is and in other encodings."""

import json
from base64 import b64encode
from collections.abc import Iterator, Mapping, Sequence
from urllib.parse import quote, quote_plus


def forms(secret: str) -> frozenset[bytes]:
    """Return the forms of a secret: as it is, in URLs, in JSON, in Python's ``repr``, in hexadecimal digits, and in
    base64 at any place of a longer text."""
    texts = {secret, quote(secret), quote(secret, safe=""), quote_plus(secret), json.dumps(secret)[1:-1]}
    texts |= {repr(secret)[1:-1], secret.encode().hex(), *(_in_base64(secret.encode()))}
    return frozenset(text.encode() for text in texts)


def _in_base64(data: bytes) -> Iterator[str]:
    """Return the letters that depend on the secret alone, whatever text is before and after it."""
    for before in range(3):
        encoded = b64encode(bytes(before) + data).decode().rstrip("=")
        whole = (before + len(data)) * 8 // 6
        yield encoded[-(-before * 8 // 6) : whole]


def texts_with_secrets(secrets: Sequence[str], texts: Mapping[str, str | bytes]) -> list[str]:
    """Return the names of the texts that contain one of the secrets in one of its forms."""
    wanted = [form for secret in secrets for form in forms(secret)]
    as_bytes = {name: text.encode() if isinstance(text, str) else text for name, text in texts.items()}
    return [name for name, data in as_bytes.items() if any(form in data for form in wanted)]
