"""Parses label and field selectors, and matches objects against them.

The grammar is Kubernetes' to the letter, since a selector that is read differently deletes other objects.
"""

import re
from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple, Self

from gpuledger.edge.kube.schema.causes import Object
from gpuledger.edge.kube.schema.object_names import label_value_problem, qualified_name_problem
from gpuledger.local.kubeapi.errors import ApiError, bad_request
from gpuledger.local.kubeapi.resources import ServedResource

NAME = "metadata.name"
NAMESPACE = "metadata.namespace"

_TOKENS = re.compile(r"\s*(?:(==|!=|[=!<>(),])|([^\s=!<>(),]+))")
_SYMBOLS = frozenset({"", "==", "!=", "=", "!", "<", ">", "(", ")", ","})
_OPERATORS = frozenset({"in", "notin", "=", "==", "!=", "<", ">"})
_ONE_OF = frozenset({"in", "=", "=="})
_NONE_OF = frozenset({"notin", "!="})
_OBJECT_OPERATORS = {"In": "in", "NotIn": "notin", "Exists": "exists", "DoesNotExist": "!"}
"""The operators of LabelSelector objects, as selectors in text spell them."""

_INTEGER = re.compile(r"[+-]?[0-9]+")
_ESCAPABLE = "\\,="


class Requirement(NamedTuple):
    """A condition on one label. `operator` is that of the text, or `exists` or `!`."""

    key: str
    operator: str
    values: frozenset[str] = frozenset()

    def matches(self, labels: Mapping[str, str]) -> bool:
        """Whether the labels fulfil it."""
        value = labels.get(self.key)
        if self.operator in _NONE_OF:
            return value is None or value not in self.values
        if self.operator == "!":
            return value is None
        if value is None:
            return False
        return self._accepts(value)

    def _accepts(self, value: str) -> bool:
        if self.operator == "exists":
            return True
        if self.operator in _ONE_OF:
            return value in self.values
        if not _INTEGER.fullmatch(value):
            return False
        bound = int(next(iter(self.values)))
        return int(value) > bound if self.operator == ">" else int(value) < bound


class LabelMatcher(NamedTuple):
    """Requirements that labels must all fulfil; without any, everything matches."""

    requirements: tuple[Requirement, ...] = ()

    @classmethod
    def parse(cls, text: str) -> Self:
        """Parse a selector; ApiError 400 if it is invalid or names invalid labels."""
        return cls(tuple(_LabelParser(text).requirements())) if text else cls()

    @classmethod
    def of(cls, selector: Mapping[str, Any]) -> Self:
        """A LabelSelector object that has been validated."""
        pairs = (
            Requirement(key, "=", frozenset({value})) for key, value in (selector.get("matchLabels") or {}).items()
        )
        expressions = (
            Requirement(one["key"], _OBJECT_OPERATORS[one["operator"]], frozenset(one.get("values") or ()))
            for one in selector.get("matchExpressions") or ()
        )
        return cls((*pairs, *expressions))

    def matches(self, labels: Mapping[str, str]) -> bool:
        """Whether the labels fulfil every condition."""
        return all(requirement.matches(labels) for requirement in self.requirements)


class _LabelParser:
    """A recursive descent over the tokens; the last token is the empty string."""

    def __init__(self, text: str) -> None:
        self._tokens: list[str] = [first or second for first, second in _TOKENS.findall(text)]
        self._tokens.append("")
        self._at = 0

    def requirements(self) -> Iterator[Requirement]:
        if self._next not in {"", "!"} and self._next in _SYMBOLS:
            raise _syntax(self._next, "!, identifier, or 'end of string'")
        while self._next:
            yield self._requirement()
            self._separator()

    @property
    def _next(self) -> str:
        return self._tokens[self._at]

    def _take(self) -> str:
        token = self._tokens[self._at]
        self._at = min(self._at + 1, len(self._tokens) - 1)
        return token

    def _separator(self) -> None:
        token = self._take()
        if token not in {"", ","}:
            raise _syntax(token, "',' or 'end of string'")
        if token and self._next != "!" and self._next in _SYMBOLS:
            raise _syntax(self._next, "identifier after ','")

    def _requirement(self) -> Requirement:
        absent = self._next == "!"
        if absent:
            self._take()
        key = self._identifier()
        problem = qualified_name_problem(key)
        if problem:
            raise bad_request(f'unable to parse requirement: <nil>: Invalid value: "{key}": {problem}')
        if absent or self._next in {"", ","}:
            return Requirement(key, "!" if absent else "exists")
        return _checked(Requirement(key, *self._condition()))

    def _condition(self) -> tuple[str, frozenset[str]]:
        operator = self._take()
        if operator not in _OPERATORS:
            raise _syntax(operator, "in, notin, =, ==, !=, gt, lt")
        if operator in {"in", "notin"}:
            return operator, self._values()
        value = "" if self._next in {"", ","} else self._identifier()
        return operator, frozenset({value})

    def _values(self) -> frozenset[str]:
        opening = self._take()
        if opening != "(":
            raise _syntax(opening, "'('")
        if self._next in _SYMBOLS - {",", ")"}:
            raise _syntax(self._next, "',', ')' or identifier")
        values = {self._value()}
        while self._take_one(",", ")") == ",":
            values.add(self._value())
        return frozenset(values)

    def _value(self) -> str:
        return "" if self._next in {",", ")"} else self._identifier()

    def _take_one(self, *expected: str) -> str:
        token = self._take()
        if token not in expected:
            raise _syntax(token, "',' or ')'")
        return token

    def _identifier(self) -> str:
        token = self._take()
        if token in _SYMBOLS:
            raise _syntax(token, "identifier")
        return token


def _checked(requirement: Requirement) -> Requirement:
    for value in requirement.values:
        if requirement.operator in {"<", ">"} and not _INTEGER.fullmatch(value):
            raise bad_request(f'unable to parse requirement: values[0]: Invalid value: "{value}": must be an integer')
        problem = label_value_problem(value)
        if problem:
            raise bad_request(f'unable to parse requirement: values[0]: Invalid value: "{value}": {problem}')
    return requirement


def _syntax(found: str, expected: str) -> ApiError:
    return bad_request(f"unable to parse requirement: found '{found}', expected: {expected}")


class Term(NamedTuple):
    """A field that must, or must not, have a value."""

    field: str
    value: str
    negated: bool = False


class FieldSelector(NamedTuple):
    """Terms that all must match; without any, everything matches."""

    terms: tuple[Term, ...]
    resource: ServedResource

    @classmethod
    def parse(cls, text: str, resource: ServedResource) -> Self:
        """Parse a selector; ApiError 400 if it is invalid or the resource has no such selectable field."""
        terms = tuple(_term(part, text) for part in _split(text) if part)
        supported = _names(resource)
        for term in terms:
            if term.field not in supported:
                raise _unsupported(term.field, resource)
        return cls(terms, resource)

    def matches(self, obj: Object) -> bool:
        """Whether the object fulfils every term; a field that is not set counts as the empty string."""
        if not self.terms:
            return True
        values = self._values(obj)
        return all((values.get(term.field, "") == term.value) is not term.negated for term in self.terms)

    def _values(self, obj: Object) -> dict[str, str]:
        metadata = obj["metadata"]
        values = {NAME: metadata.get("name", ""), NAMESPACE: metadata.get("namespace", "")}
        if all(term.field in values for term in self.terms):
            return values
        return values | dict(self.resource.strategy.field_labels(obj))


def _names(resource: ServedResource) -> frozenset[str]:
    names = frozenset({NAME, NAMESPACE, *resource.strategy.field_labels({})})
    return names - {NAMESPACE} if resource.is_custom and not resource.namespaced else names


def _unsupported(field: str, resource: ServedResource) -> ApiError:
    if resource.is_custom or resource.strategy.field_labels({}):
        return bad_request(f"field label not supported: {field}")
    return bad_request(f'"{field}" is not a known field selector: only "{NAME}", "{NAMESPACE}"')


def _split(text: str) -> list[str]:
    """Cut at commas that no backslash escapes."""
    return [match.group() for match in re.finditer(r"(?:\\.|[^,\\]|\\$)+", text, re.DOTALL)]


def _term(part: str, text: str) -> Term:
    match = re.match(r"((?:\\.|[^\\=!]|!(?!=))*)(!=|==|=)(.*)", part, re.DOTALL)
    if not match:
        raise bad_request(f"invalid selector: '{text}'; can't understand '{part}'")
    field, operator, value = match.groups()
    return Term(field, _unescaped(value), operator == "!=")


def _unescaped(value: str) -> str:
    out: list[str] = []
    letters = iter(value)
    for letter in letters:
        if letter == "\\":
            escaped = next(letters, "")
            if not escaped or escaped not in _ESCAPABLE:
                raise bad_request(f"invalid field selector: invalid escape sequence: \\{escaped}")
            out.append(escaped)
        elif letter in _ESCAPABLE:
            raise bad_request(f"invalid field selector: unescaped character in value: {letter}")
        else:
            out.append(letter)
    return "".join(out)
