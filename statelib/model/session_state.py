"""The names and types of the states of session windows. They are those of Flink's window operator for a state that has
the name of its contents, ``window-contents``.

Source: docs/spec/formats.md#session-windows (WindowOperator, MergingWindowSet).
"""

from collections.abc import Iterable

from statelib.model.state import EVENT_TIMERS, PROCESSING_TIMERS, KeyedStateSchema, StateDescriptor, StateKind
from statelib.model.types import TIME_WINDOW, Tuple

WINDOW_SET = "merging-window-set"
"""The name of the state with the session windows per key, or the beginning of this name."""
WINDOW_CONTENTS, WINDOW_TIMERS = "window-contents", "window-timers"
"""The names of the contents and of the timer service of Flink's window operator."""


def window_set(state: str) -> str:
    """Return the name of the state that has the open session windows of each key."""
    return WINDOW_SET if state == WINDOW_CONTENTS else f"{WINDOW_SET}_{state}"


def session_timers(state: str) -> str:
    """Return the name of the timer service of a state with session windows."""
    return WINDOW_TIMERS if state == WINDOW_CONTENTS else state


def window_set_descriptor(state: str, renamed_from: Iterable[str] = ()) -> StateDescriptor:
    """Return the description of the open session windows per key: pairs of a window and of the window under which its
    contents are stored. ``renamed_from``: names that the state with the contents had in older snapshots."""
    windows, earlier = Tuple((TIME_WINDOW, TIME_WINDOW)), tuple(map(window_set, renamed_from))
    return StateDescriptor(window_set(state), StateKind.LIST, windows, renamed_from=earlier)


def timed_states(schema: KeyedStateSchema) -> set[str]:
    """Return the names of the timer states, and of the states that these timers may change."""
    timers = [state.name for state in schema.states if state.kind is StateKind.TIMERS]
    services = {name.removeprefix(prefix) for name in timers for prefix in (EVENT_TIMERS, PROCESSING_TIMERS)}
    states = {WINDOW_CONTENTS if service == WINDOW_TIMERS else service for service in services}
    return {*timers, *states, *map(window_set, states)}
