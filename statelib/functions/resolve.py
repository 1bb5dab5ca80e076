"""From ``package.module:name`` in a pipeline file to the function, at the moment it is needed."""

import importlib
import re
from collections.abc import Callable
from difflib import get_close_matches

from statelib.errors import InvalidRequestError

REFERENCE = re.compile(r"[A-Za-z_]\w*(\.[A-Za-z_]\w*)*:[A-Za-z_]\w*", re.ASCII)

UpdateFunction = Callable[..., object]
"""``(events, state)`` or ``(events, state, operator)``; its result is checked by ``functions.results``."""


def resolve(reference: str) -> UpdateFunction:
    """Import a user function.

    Raises InvalidRequestError (kind ``bad-function``) for a malformed reference, a module or a
    name that does not exist, and a thing that cannot be called. An error inside the module
    itself comes through as it is.
    """
    if not REFERENCE.fullmatch(reference):
        raise _bad(reference, "expected package.module:name")
    module_name, _, name = reference.partition(":")
    try:
        module = importlib.import_module(module_name)
    except ModuleNotFoundError as error:
        if error.name is None or not (module_name + ".").startswith(error.name + "."):
            raise
        raise _bad(reference, f"there is no module {error.name!r}", "is its directory on PYTHONPATH?") from error
    if not hasattr(module, name):
        close = get_close_matches(name, [n for n in vars(module) if not n.startswith("_")], 1)
        meant = f", did you mean {close[0]!r}?" if close else ""
        raise _bad(reference, f"module {module_name} ({module.__file__}) has no {name!r}{meant}")
    function = getattr(module, name)
    if not callable(function):
        raise _bad(reference, f"expected a function, found {type(function).__name__}")
    return function  # type: ignore[no-any-return]


def _bad(reference: str, problem: str, hint: str = "") -> InvalidRequestError:
    return InvalidRequestError(f"function {reference!r}: {problem}", kind="bad-function", hint=hint)
