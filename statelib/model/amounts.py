"""Numbers with the things that they count, as messages, tables and pages for people have them."""


def amount(number: int, noun: str) -> str:
    """``1 file``, ``2,039 files``, ``2 entries``. ``noun``: in the singular."""
    return f"{number:,} {noun if number == 1 else plural(noun)}"


def number_of(number: int, noun: str) -> str:
    """The same without groups of digits, as errors have numbers beside others that are compared: ``1602 bytes``."""
    return f"{number} {noun if number == 1 else plural(noun)}"


def plural(noun: str) -> str:
    """The regular plural of an English noun: file, files; entry, entries; key, keys; try, tries."""
    if noun.endswith("y") and noun[-2:-1] not in "aeiou":
        return f"{noun[:-1]}ies"
    return f"{noun}s"


def keys_and_entries(keys: int | None, entries: int) -> str:
    """How much state there is: ``2,039 keys, 6,587 entries``; without the keys where they are not known."""
    told = amount(entries, "entry")
    return told if keys is None else f"{amount(keys, 'key')}, {told}"
