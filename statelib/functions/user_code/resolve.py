"""Import of the functions that a pipeline file names as ``package.module:name``."""

import importlib
import re
from collections.abc import Callable
from difflib import get_close_matches

from statelib.errors import InvalidRequestError

REFERENCE = re.compile(r"[A-Za-z_]\w*(\.[A-Za-z_]\w*)*:[A-Za-z_]\w*", re.ASCII)

UpdateFunction = Callable[..., object]
"""A function of ``(events, state)`` or ``(events, state, operator)``. ``functions.user_code.results`` checks its
result."""


def resolve(reference: str) -> UpdateFunction:
    """Import a user function and return it.

    Raise InvalidRequestError (``bad-function``) for a malformed reference, a module or a name that does not exist, and
    an object that cannot be called. An error that the module raises on import is raised unchanged.
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
