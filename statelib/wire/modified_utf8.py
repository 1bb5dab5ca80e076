"""Java's modified UTF-8, which ``DataOutput.writeUTF`` writes after a u16 length.

U+0000 is ``C0 80``, a character beyond U+FFFF is its two surrogates of three bytes each, and lone surrogates are legal.
A UTF-8 decoder would therefore fail.

Source: docs/spec/formats.md#conventions.
"""

from statelib.errors import CorruptStateError

_NUL = b"\xc0\x80"


def encode(text: str) -> bytes:
    """Return ``text`` as modified UTF-8, lone surrogates included."""
    units = text.encode("utf-16-be", "surrogatepass")
    if len(units) == 2 * len(text):
        return text.encode("utf-8", "surrogatepass").replace(b"\x00", _NUL)
    pairs = (units[i : i + 2].decode("utf-16-be", "surrogatepass") for i in range(0, len(units), 2))
    return "".join(pairs).encode("utf-8", "surrogatepass").replace(b"\x00", _NUL)


def decode(data: bytes, what: str) -> str:
    """Return the text of modified UTF-8; inverse of :func:`encode`. ``what`` names the source of the bytes in errors.

    Raise CorruptStateError (``bad-utf``) if the bytes are not modified UTF-8.
    """
    try:
        text = data.replace(_NUL, b"\x00").decode("utf-8", "surrogatepass")
    except UnicodeDecodeError as error:
        raise CorruptStateError(
            f"{what}: expected modified UTF-8, found {data[error.start : error.start + 4].hex()} at byte {error.start}",
            kind="bad-utf",
        ) from error
    if text.isascii():
        return text
    return text.encode("utf-16-be", "surrogatepass").decode("utf-16-be", "surrogatepass")
