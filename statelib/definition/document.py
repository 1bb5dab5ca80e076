"""A YAML file as plain data, with the line number of each field."""

import re
from collections.abc import Hashable
from dataclasses import dataclass, field
from typing import Any

import yaml

from statelib.definition.problems import Problem, Where

LOADER = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
MAX_NODES = 20_000
MAX_DEPTH = 20
MAX_BITS = 64
_OTHER_BASE = re.compile(r"[-+]?0[0-7_]+|.*:.*")
"""Numbers that people read as others: YAML's octal numbers, such as 012, and those in base 60, such as 1:30."""


@dataclass(frozen=True)
class Document:
    """The content of a YAML file. ``data``: its values, None if there are ``problems``. ``lines``: line number of each
    field, from 1, by its path."""

    data: object
    problems: tuple[Problem, ...]
    lines: dict[Where, int] = field(repr=False)

    def line(self, where: Where) -> int:
        """Return the line of a field, or of the nearest field that contains it."""
        while where and where not in self.lines:
            where = where[:-1]
        return self.lines.get(where, 1)


def read_document(text: str) -> Document:
    """Parse one YAML document. These are problems: a field that is given twice, a key that is not text, a value that
    does not fit its tag, a number in base 8 or 60, an option such as NO, which YAML takes for false, and more than
    :data:`MAX_NODES` values or :data:`MAX_DEPTH` levels, where each alias and merged key counts like the values that it
    repeats."""
    try:
        if (line := _line_too_deep(text)) is not None:
            return Document(None, (_too_large(()),), {(): line})
        loader = LOADER(text)
        walk = _Walk(loader)
        try:
            node = loader.get_single_node()
            walk.visit(node, ())
            data = None if walk.problems or node is None else loader.construct_document(node)
        finally:
            loader.dispose()
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark
        line = mark.line + 1 if mark else 1
        return Document(None, (Problem((), f"not valid YAML: {error.problem or error.context}"),), {(): line})
    except (yaml.YAMLError, ValueError) as error:
        return Document(None, (Problem((), f"not valid YAML: {error}"),), {(): 1})
    return Document(data, tuple(walk.problems), walk.lines)


def _line_too_deep(text: str) -> int | None:
    """Return the line where the text has more levels or values than :class:`_Walk` allows, None if there is none. This
    reads the parser's events, because creating nodes for a very deep text overflows the stack."""
    depth = 0
    for number, event in enumerate(yaml.parse(text, LOADER)):
        depth += isinstance(event, yaml.CollectionStartEvent) - isinstance(event, yaml.CollectionEndEvent)
        if depth > MAX_DEPTH + 1 or number > 3 * MAX_NODES:
            return event.start_mark.line + 1 if event.start_mark else 1
    return None


def _too_large(where: Where) -> Problem:
    limit = f"{MAX_NODES} values, {MAX_DEPTH} levels"
    return Problem(where[:5], f"larger than a pipeline file can be (limit: {limit})")


class _Walk:
    """A walk through the nodes of a document before they become data, in which a repeated key would be lost."""

    def __init__(self, loader: Any) -> None:
        self._loader = loader
        self.lines: dict[Where, int] = {}
        self.problems: list[Problem] = []
        self.visited = 0

    def visit(self, node: yaml.Node | None, where: Where) -> None:
        self.visited += 1
        if node is None or self.problems:
            return
        if self.visited > MAX_NODES or len(where) > MAX_DEPTH:
            self.problems.append(_too_large(where))
            return
        self.lines.setdefault(where, node.start_mark.line + 1)
        if isinstance(node, yaml.MappingNode):
            self._visit_mapping(node, where)
        elif isinstance(node, yaml.SequenceNode):
            for i, item in enumerate(node.value):
                self.visit(item, (*where, i))
        else:
            self._visit_scalar(node, where)

    def _visit_scalar(self, node: yaml.Node, where: Where) -> None:
        """Report a value that does not fit its tag. PyYAML's conversion raises errors of many types for it."""
        try:
            value = self._loader.construct_object(node)
        except Exception as error:  # noqa: BLE001 - KeyError, IndexError, AttributeError, ValueError and others
            own = error.problem if isinstance(error, yaml.MarkedYAMLError) else None
            reason = own or f"not a valid {node.tag.rpartition(':')[2]}, found {str(node.value)!r:.40}"
            self.problems.append(Problem(where, f"not valid YAML: {reason}"))
            return
        if isinstance(value, int) and value.bit_length() > MAX_BITS:
            text = f"expected a whole number of at most {MAX_BITS} bits, found one of {value.bit_length()}"
            self.problems.append(Problem(where, text))
        elif type(value) in (int, float) and _OTHER_BASE.fullmatch(str(node.value)):
            text = f"YAML takes {node.value} for the number {value}: write this number, or put the text in quotes"
            self.problems.append(Problem(where, text))
        elif type(value) is bool and where[-2:-1] == ("options",) and str(node.value).lower() != str(value).lower():
            text = f"YAML takes {node.value} for {str(value).lower()}: write this, or put the text in quotes"
            self.problems.append(Problem(where, text))

    def _visit_mapping(self, node: yaml.MappingNode, where: Where) -> None:
        seen: dict[Hashable, int] = {}
        for key_node, value_node in node.value:
            line = key_node.start_mark.line + 1
            if key_node.tag == "tag:yaml.org,2002:merge":
                self.visit(value_node, (*where, "<<"))
                continue
            if not isinstance(key_node, yaml.ScalarNode) or key_node.tag != "tag:yaml.org,2002:str":
                key = getattr(key_node, "value", "")
                self.lines[where] = line
                self.problems.append(Problem(where, f"key {key!r:.40}: expected text (put it in quotes)"))
                return
            path = (*where, key_node.value)
            if key_node.value in seen:
                self.lines[path] = line
                text = f"given twice, first on line {seen[key_node.value]}"
                self.problems.append(Problem(path, text))
                return
            seen[key_node.value] = line
            self.lines[path] = line
            self.visit(value_node, path)
