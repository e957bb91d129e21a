"""Parses PromQL, as far as rules and dashboards need it: what cannot be parsed is an error, never left out.

It checks no types: that is promtool's part. What it is for stands in `promql_labels`.
"""

import re
from collections.abc import Callable, Iterator
from typing import Final, NamedTuple, TypeVar

T = TypeVar("T")

AGGREGATIONS: Final = frozenset({"sum", "min", "max", "avg", "count", "group", "topk", "bottomk", "quantile"})
SET_OPERATORS: Final = frozenset({"and", "or", "unless"})
COMPARISONS: Final = frozenset({"==", "!=", ">", "<", ">=", "<="})
_PRECEDENCE: Final = (frozenset({"or"}), frozenset({"and", "unless"}), COMPARISONS, frozenset("+-"), frozenset("*/%"))
"""The operators, the weakest first; all of them group from the left."""

_TOKEN: Final = re.compile(
    r"""\s+|\#[^\n]*|(?P<duration>(?:\d+(?:ms|[smhdwy]))+)|(?P<number>\d+(?:\.\d+)?)|(?P<text>"(?:[^"\\]|\\.)*")"""
    r"""|(?P<name>[A-Za-z_][\w:]*)|(?P<mark>=~|!~|==|!=|>=|<=|[-+*/%<>={}()\[\],:])""",
)


class PromqlError(ValueError):
    """The text is no PromQL that this parser takes."""


class Matcher(NamedTuple):
    """One condition of a selector on a label."""

    label: str
    operator: str
    value: str


class Selector(NamedTuple):
    """The series of a metric."""

    metric: str
    matchers: tuple[Matcher, ...] = ()


class Literal(NamedTuple):
    """A number, or the text of a string."""

    value: float | str


class Call(NamedTuple):
    """A function with its arguments."""

    function: str
    arguments: tuple["Node", ...]


class Aggregation(NamedTuple):
    """An aggregation; `by` is False for `without`, and for neither with no labels it is True."""

    operator: str
    by: bool
    labels: tuple[str, ...]
    arguments: tuple["Node", ...]


class Binary(NamedTuple):
    """Two operands; `on` is None where nothing says by which labels they match, False for `ignoring`.

    `many` names the side (`left`, `right`) whose series may share a partner, which gives them the labels of `include`.
    """

    operator: str
    left: "Node"
    right: "Node"
    returns_bool: bool = False
    on: bool | None = None
    labels: tuple[str, ...] = ()
    many: str | None = None
    include: tuple[str, ...] = ()


Node = Selector | Literal | Call | Aggregation | Binary


def parse(text: str) -> Node:
    """The expression; what it does not take raises PromqlError."""
    parser = _Parser(text)
    node = parser.expression()
    parser.expect("end")
    return node


def selectors(node: Node) -> Iterator[Selector]:
    """Every selector of an expression, from the left."""
    match node:
        case Selector():
            yield node
        case Call(_, arguments) | Aggregation(arguments=arguments):
            for argument in arguments:
                yield from selectors(argument)
        case Binary(left=left, right=right):
            yield from selectors(left)
            yield from selectors(right)


class _Token(NamedTuple):
    kind: str
    text: str


def _tokens(text: str) -> Iterator[_Token]:
    place = 0
    while place < len(text):
        found = _TOKEN.match(text, place)
        if found is None:
            raise PromqlError(f"Nothing in PromQL begins with {text[place : place + 10]!r} in {text!r}.")
        if found.lastgroup is not None:
            yield _Token(found.lastgroup, found.group())
        place = found.end()
    yield _Token("end", "")


class _Parser:
    """Recursive descent over the tokens of one text."""

    def __init__(self, text: str) -> None:
        self._text = text
        self._tokens = list(_tokens(text))
        self._place = 0

    @property
    def _next(self) -> _Token:
        return self._tokens[self._place]

    def expect(self, kind: str, text: str | None = None) -> str:
        """Take a token, which has to be of that kind, and that text."""
        token = self._next
        if token.kind != kind or text not in (None, token.text):
            raise PromqlError(f"{token.text or 'The end'!r} stands where {text or kind} belongs in {self._text!r}.")
        self._place += 1
        return token.text

    def _takes(self, *texts: str) -> str | None:
        """The next token, taken, if it is one of these marks or words."""
        if self._next.text not in texts or self._next.kind not in ("mark", "name"):
            return None
        self._place += 1
        return self._tokens[self._place - 1].text

    def expression(self, level: int = 0) -> Node:
        if level == len(_PRECEDENCE):
            return self._unary()
        node = self.expression(level + 1)
        while (operator := self._takes(*_PRECEDENCE[level])) is not None:
            node = self._binary(operator, node, level)
        return node

    def _binary(self, operator: str, left: Node, level: int) -> Binary:
        returns_bool = self._takes("bool") is not None
        on: bool | None = None
        labels: tuple[str, ...] = ()
        many: str | None = None
        include: tuple[str, ...] = ()
        if matching := self._takes("on", "ignoring"):
            on, labels = matching == "on", self._labels()
            if group := self._takes("group_left", "group_right"):
                many = group.removeprefix("group_")
                include = self._labels() if self._next.text == "(" else ()
        return Binary(operator, left, self.expression(level + 1), returns_bool, on, labels, many, include)

    def _labels(self) -> tuple[str, ...]:
        self.expect("mark", "(")
        return tuple(self._listed(lambda: self.expect("name"), ")"))

    def _listed(self, item: Callable[[], T], end: str) -> Iterator[T]:
        while not self._takes(end):
            yield item()
            if self._next.text != end:
                self.expect("mark", ",")

    def _unary(self) -> Node:
        if self._takes("-"):
            return Binary("*", Literal(-1.0), self._unary())
        return self._ranged(self._primary())

    def _ranged(self, node: Node) -> Node:
        """Ranges, steps and offsets change no labels, so they are taken and left out."""
        while True:
            if self._takes("["):
                self.expect("duration")
                if self._takes(":") and self._next.kind == "duration":
                    self.expect("duration")
                self.expect("mark", "]")
            elif self._takes("offset"):
                self.expect("duration")
            else:
                return node

    def _primary(self) -> Node:
        if self._takes("("):
            node = self.expression()
            self.expect("mark", ")")
            return node
        if self._next.kind == "number":
            return Literal(float(self.expect("number")))
        if self._next.kind == "text":
            return Literal(_unquoted(self.expect("text")))
        name = self.expect("name")
        if name in AGGREGATIONS:
            return self._aggregation(name)
        if self._next.text == "(":
            return Call(name, self._arguments())
        return Selector(name, self._matchers())

    def _aggregation(self, operator: str) -> Aggregation:
        grouping = self._takes("by", "without")
        labels = self._labels() if grouping else ()
        arguments = self._arguments()
        if grouping is None and (grouping := self._takes("by", "without")):
            labels = self._labels()
        return Aggregation(operator, grouping != "without", labels, arguments)

    def _arguments(self) -> tuple[Node, ...]:
        self.expect("mark", "(")
        return tuple(self._listed(self.expression, ")"))

    def _matchers(self) -> tuple[Matcher, ...]:
        return tuple(self._listed(self._matcher, "}")) if self._takes("{") else ()

    def _matcher(self) -> Matcher:
        label, operator = self.expect("name"), self._takes("=", "!=", "=~", "!~")
        if operator is None:
            raise PromqlError(f"{self._next.text!r} compares no label {label} in {self._text!r}.")
        return Matcher(label, operator, _unquoted(self.expect("text")))


def _unquoted(text: str) -> str:
    return re.sub(r"\\(.)", r"\1", text[1:-1])
