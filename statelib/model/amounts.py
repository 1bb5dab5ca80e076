"""Numbers together with what they count, formatted for messages, tables and pages that people read."""


def amount(number: int, noun: str) -> str:
    """Return a number with its noun: ``1 file``, ``2,039 files``, ``2 entries``. ``noun`` is in the singular."""
    return f"{number:,} {noun if number == 1 else plural(noun)}"


def number_of(number: int, noun: str) -> str:
    """Return a number with its noun, without thousands separators: ``1602 bytes``. Errors use this form, because
    their numbers are compared with others."""
    return f"{number} {noun if number == 1 else plural(noun)}"


def plural(noun: str) -> str:
    """Return the regular plural of an English noun: files of file, entries of entry, keys of key, tries of try."""
    if noun.endswith("y") and noun[-2:-1] not in "aeiou":
        return f"{noun[:-1]}ies"
    return f"{noun}s"


def keys_and_entries(keys: int | None, entries: int | None) -> str:
    """Return the amount of state as text: ``2,039 keys, 6,587 entries``. ``keys`` None (not counted) is left out."""
    entries_text = "entries not counted" if entries is None else amount(entries, "entry")
    return entries_text if keys is None else f"{amount(keys, 'key')}, {entries_text}"
