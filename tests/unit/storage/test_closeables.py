"""Closing a registry: every resource is closed, and no failure of one is lost."""

import pytest

from statelib.storage.closeables import CloseableRegistry


class Failing:
    """A resource that is closed with an error."""

    def __init__(self, text: str) -> None:
        self.text = text
        self.closed = 0

    def close(self) -> None:
        self.closed += 1
        raise OSError(self.text)


def test_closing_raises_the_first_error_with_the_others_attached() -> None:
    """Requirement R129."""
    resources = [Failing("one"), Failing("two"), Failing("three")]
    registry = CloseableRegistry()
    for resource in resources:
        registry.register(resource)
    with pytest.raises(OSError, match="three") as caught:
        registry.close()
    assert [resource.closed for resource in resources] == [1, 1, 1]
    assert caught.value.__notes__ == ["also while closing: two", "also while closing: one"]
