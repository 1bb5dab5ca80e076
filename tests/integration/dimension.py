"""Customers that change their city and tier, and the versions that a dimension of type 2 has of them."""

import random
from collections.abc import Mapping
from datetime import UTC, date, datetime, timedelta
from typing import Any

Event = dict[str, Any]
Version = list[Any]
"""The customer, the city, the tier, the first day, and the day after the last one, or None."""


def changes_of(day: date, chance: random.Random) -> list[Event]:
    """Return some changes of a day, in the order of their times. A fourth of them are deletes."""
    midnight = datetime(day.year, day.month, day.day, tzinfo=UTC)
    return [
        {
            "customer": chance.choice("abcdefghij"),
            "city": chance.choice(["Rome", "Oslo", None]),
            "tier": chance.randrange(2),
            "at": midnight + timedelta(minutes=n),
            "op": chance.choice("uuud"),
        }
        for n in range(25)
    ]


def versions(days: Mapping[date, list[Event]]) -> list[Version]:
    """Return each version of each customer. The last change of a day counts."""
    ended: list[Version] = []
    current: dict[str, Version] = {}
    for day, events in sorted(days.items()):
        for customer, event in {event["customer"]: event for event in events}.items():
            content = None if event["op"] == "d" else [event["city"], event["tier"]]
            before = current.get(customer)
            if before is not None and before[1:3] != content:
                ended.append([*current.pop(customer)[:4], day])
            if content is not None and customer not in current:
                current[customer] = [customer, *content, day, None]
    return [*ended, *current.values()]
