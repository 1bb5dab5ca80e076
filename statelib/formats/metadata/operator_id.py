"""Operator ids: the 16 bytes that link state in ``_metadata`` to an operator of a Flink job.

Source: docs/spec/formats.md#operator-ids (StreamGraphHasherV2; MurmurHash3 x64 128, seed 0).
"""

_MASK = (1 << 64) - 1
_C1, _C2 = 0x87C37B91114253D5, 0x4CF5AD432745937F


def operator_id(uid: str) -> bytes:
    """Return the 16-byte operator id of ``uid``. Flink prints it in hexadecimal.

    Law: ``operator_id("keyed").hex() == "e7beec23fd9f6ed5e1b8395129d43728"``.
    """
    data = uid.encode()
    h1 = h2 = 0
    whole = len(data) - len(data) % 16
    for at in range(0, whole, 16):
        h1 ^= _mix_first(int.from_bytes(data[at : at + 8], "little"))
        h1 = ((_rotate(h1, 27) + h2) * 5 + 0x52DCE729) & _MASK
        h2 ^= _mix_second(int.from_bytes(data[at + 8 : at + 16], "little"))
        h2 = ((_rotate(h2, 31) + h1) * 5 + 0x38495AB5) & _MASK
    tail = data[whole:]
    h2 ^= _mix_second(int.from_bytes(tail[8:], "little"))
    h1 ^= _mix_first(int.from_bytes(tail[:8], "little"))
    h1 ^= len(data)
    h2 ^= len(data)
    h1 = (h1 + h2) & _MASK
    h2 = (h2 + h1) & _MASK
    h1, h2 = _finish(h1), _finish(h2)
    h1 = (h1 + h2) & _MASK
    h2 = (h2 + h1) & _MASK
    return h1.to_bytes(8, "little") + h2.to_bytes(8, "little")


def _rotate(x: int, bits: int) -> int:
    return ((x << bits) | (x >> (64 - bits))) & _MASK


def _mix_first(k: int) -> int:
    return (_rotate((k * _C1) & _MASK, 31) * _C2) & _MASK


def _mix_second(k: int) -> int:
    return (_rotate((k * _C2) & _MASK, 33) * _C1) & _MASK


def _finish(k: int) -> int:
    k = ((k ^ (k >> 33)) * 0xFF51AFD7ED558CCD) & _MASK
    k = ((k ^ (k >> 33)) * 0xC4CEB9FE1A85EC53) & _MASK
    return k ^ (k >> 33)
