"""No file names a place on the machine it was written on, or where that machine got its packages."""

import re

import pytest

from tests.architecture.repository import ROOT, files

# No pattern matches its own text, so this file is checked like any other.
PLACES = re.compile(r"(?<![\w.\-})>])/(?:work|root|farm)(?:/|(?=[\s\"'`,;:)\]]|$))")
HOSTS = re.compile(
    r"\b(?:pypi\.(?:org|python)|pythonhosted\.(?:org|com)|registry\.npmjs|repo1?\.maven|proxy\.golang"
    r"|index\.crates|artifactor[y]|devp[i])"
)
INDEX = re.compile(r"\bindex[-_]url\b")


def words(text: str) -> list[str]:
    """Return the places, hosts and index settings that a text names, in order of kind."""
    return [match.group() for pattern in (PLACES, HOSTS, INDEX) for match in pattern.finditer(text)]


def test_no_file_names_this_machine() -> None:
    names = {}
    for path in files():
        name = str(path.relative_to(ROOT))
        named = words(name + "\n" + path.read_bytes().decode("latin-1"))
        if named:
            names[name] = sorted(set(named))
    assert names == {}


@pytest.mark.parametrize("place", ["work", "root", "farm"])
def test_places_on_a_machine_are_detected(place: str) -> None:
    inside = (f"/{place}/x", f"file:/{place}/x", f"file:///{place}/x", f"-v /{place}:/x")
    exactly = (f'"/{place}"', f"cd /{place}", f"cd /{place}\n")
    for text in inside + exactly:
        assert len(words(text)) == 1, text
    relative = (f"<x>/{place}/y", f"a/{place}/y", f"{{x}}/{place}/y", f"{place}/x", f"/srv/{place}/")
    longer = (f"/{place}ing/x", f"/{place}-x", f"/{place}.py")
    for text in relative + longer:
        assert words(text) == [], text


def test_hosts_and_index_settings_are_detected() -> None:
    host, setting = ".".join(("pypi", "org")), "-".join(("index", "url"))
    assert words(f"https://{host}/simple") == [host]
    assert words(f"--{setting} x --extra-{setting} y") == [setting, setting]
    assert words("a typist, an organisation, an index") == []
