"""Splits SQL into tokens by PostgreSQL's lexical rules, and puts other names in the place of qualified ones. Pure.

It knows no grammar: it never decides what a statement means, only where its names stand. Whoever runs what comes out
asks PostgreSQL what it refers to.
"""

import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from enum import Enum
from typing import Final, NamedTuple


class Kind(Enum):
    """Kinds of tokens; what is skipped between the others is `SPACE`."""

    SPACE = "space"
    NAME = "name"
    TEXT = "text"
    OTHER = "other"


class Token(NamedTuple):
    """A part of a statement; `value` is the name or text that it stands for."""

    kind: Kind
    source: str
    value: str = ""

    @property
    def is_quoted(self) -> bool:
        """Whether it is a name in double quotes, and so no keyword."""
        return self.kind is Kind.NAME and self.source.endswith('"')


_NO_SIGN: Final = r"[^\x00-#%-/:-@\[-^`{-\x7f]"
"""What names go on with: letters, digits, `_`, `$` and all beyond ASCII. Written as what it is not: a set of the 65,000
characters beyond would take a command longer to compile than most of its modules take to import."""

_SPACE: Final = re.compile(r"\s+|--[^\n]*")
_COMMENT_PART: Final = re.compile(r"/\*|\*/")
_NAME: Final = re.compile(rf"(?![0-9$]){_NO_SIGN}+")
_QUOTED_NAME: Final = re.compile(r'(?:[uU]&)?"((?:[^"]|"")*)"')
_ESCAPED_TEXT: Final = re.compile(r"[eE]'((?:[^'\\]|\\.|'')*)'", re.DOTALL)
_TEXT: Final = re.compile(r"(?:[bBxXnN]|[uU]&)?'((?:[^']|'')*)'")
_DOLLAR_QUOTE: Final = re.compile(rf"\$(?:(?![0-9])(?:(?!\$){_NO_SIGN})+)?\$")
_NUMBER: Final = re.compile(r"\.?[0-9][0-9A-Za-z_]*(?:\.[0-9A-Za-z_]*)?")

_NO_ALIAS: Final = frozenset(
    (
        *("where", "join", "inner", "cross", "left", "right", "full", "natural", "on", "using", "group", "order"),
        *("having", "limit", "offset", "fetch", "for", "union", "intersect", "except", "window", "tablesample"),
    )
)
"""Keywords behind a table that has no alias; any other name there is one."""


def tokens(text: str) -> Iterator[Token]:
    """The tokens of a text, which together are the text; what PostgreSQL would refuse becomes `OTHER`."""
    at = 0
    while at < len(text):
        token = _token(text, at)
        yield token
        at += len(token.source)


def _token(text: str, at: int) -> Token:
    if text.startswith("/*", at):
        return Token(Kind.SPACE, text[at : _comment_end(text, at)])
    if match := _DOLLAR_QUOTE.match(text, at):
        end = text.find(match[0], match.end())
        end = len(text) if end < 0 else end
        return Token(Kind.TEXT, text[at : end + len(match[0])], text[match.end() : end])
    for kind, pattern, value_of in _PATTERNS:
        if match := pattern.match(text, at):
            return Token(kind, match[0], value_of(match))
    return Token(Kind.OTHER, text[at], text[at])


_PATTERNS: Final[tuple[tuple[Kind, re.Pattern[str], Callable[[re.Match[str]], str]], ...]] = (
    (Kind.SPACE, _SPACE, lambda _: ""),
    (Kind.TEXT, _ESCAPED_TEXT, lambda match: match[1].replace("''", "'")),
    (Kind.TEXT, _TEXT, lambda match: match[1].replace("''", "'")),
    (Kind.NAME, _QUOTED_NAME, lambda match: match[1].replace('""', '"')),
    (Kind.NAME, _NAME, lambda match: match[0].lower()),
    (Kind.OTHER, _NUMBER, lambda match: match[0]),
)
"""In this order: letters before a quote belong to it."""


def _comment_end(text: str, at: int) -> int:
    """Comments nest."""
    depth = 0
    for match in _COMMENT_PART.finditer(text, at):
        depth += 1 if match[0] == "/*" else -1
        if depth == 0:
            return match.end()
    return len(text)


def quoted(name: str) -> str:
    """A name in double quotes."""
    return '"{}"'.format(name.replace('"', '""'))


def first_word(statement: str) -> str:
    """The first name or sign of a statement, in lower case; empty if there is nothing but space and comments."""
    return next((token.value for token in tokens(statement) if token.kind is not Kind.SPACE), "")


def without_end(statement: str) -> str:
    """The statement without a semicolon at its end, and without what is behind it."""
    found = list(tokens(statement))
    while found and found[-1].kind is Kind.SPACE:
        found.pop()
    if found and found[-1].source == ";":
        found.pop()
    return "".join(token.source for token in found)


_CLOCK_CALLS: Final = ("now", "transaction_timestamp", "statement_timestamp", "clock_timestamp", "timeofday")
_CLOCK_WORDS: Final = ("current_timestamp", "current_date", "current_time", "localtimestamp", "localtime")
_CLOCK_TEXTS: Final = ("now", "today", "yesterday", "tomorrow")


def clock_words(statement: str) -> list[str]:
    """Where a statement reads the server's clock: the functions, keywords and texts that do."""
    found = [token for token in tokens(statement) if token.kind is not Kind.SPACE]
    following = [*(token.source for token in found[1:]), ""]
    words = []
    for token, behind in zip(found, following, strict=True):
        if token.kind is Kind.NAME and token.value in _CLOCK_CALLS and behind == "(":
            words.append(f"{token.value}()")
        elif token.kind is Kind.NAME and token.value in _CLOCK_WORDS and not token.is_quoted:
            words.append(token.value)
        elif token.kind is Kind.TEXT and token.value.strip().lower() in _CLOCK_TEXTS:
            words.append(token.source)
    return list(dict.fromkeys(words))


@dataclass(frozen=True, slots=True)
class Relocation:
    """Names in another place: of relations by schema and name, and of functions that calls name with or without one.

    `schemas` are those whose qualified names are looked up; `clock` is called in the place of `now()`, where given.
    """

    schemas: tuple[str, ...]
    relations: Mapping[tuple[str, str], str]
    functions: Mapping[str, str]
    clock: str | None = None


def relocated(text: str, to: Relocation) -> str:
    """The text with its names in the other place; what is no name of `to` stays as it is."""
    return "".join(_Relocating(list(tokens(text)), to).written())


@dataclass(slots=True)
class _Relocating:
    """One text under way."""

    found: list[Token]
    to: Relocation
    _at: int = 0
    _written: list[str] = field(default_factory=list)

    def written(self) -> list[str]:
        while self._at < len(self.found):
            if not self._put_name():
                self._written.append(self.found[self._at].source)
                self._at += 1
        return self._written

    def _put_name(self) -> bool:
        """Write what the name here is in the other place; False: it is none of those."""
        token = self.found[self._at]
        if token.kind is not Kind.NAME or self._before() == ".":
            return False
        (dot, _), (name, name_at) = self._behind(self._at, 1), self._behind(self._at, 2)
        if token.value in self.to.schemas and dot.source == "." and name.kind is Kind.NAME:
            return self._put_qualified((token.value, name.value), name_at)
        if dot.source == "(":
            return self._put_call(token.value)
        return False

    def _put_qualified(self, name: tuple[str, str], at: int) -> bool:
        behind, _ = self._behind(at, 1)
        if behind.source == "(" and name[1] in self.to.functions:
            self._written.append(self.to.functions[name[1]])
        elif name not in self.to.relations:
            return False
        elif behind.source == ".":  # a column of it: whatever it is called now, that is its alias
            self._written.append(quoted(name[1]))
        else:
            self._written.append(self.to.relations[name])
            if not self.to.relations[name].endswith(quoted(name[1])) and not _is_alias(behind):
                self._written.append(f" AS {quoted(name[1])}")
        self._at = at + 1
        return True

    def _put_call(self, name: str) -> bool:
        if name == "now" and self.to.clock is not None:
            self._written.append(self.to.clock)
        elif name in self.to.functions:
            self._written.append(self.to.functions[name])
        else:
            return False
        self._at += 1
        return True

    def _before(self) -> str:
        found = (token.source for token in reversed(self.found[: self._at]) if token.kind is not Kind.SPACE)
        return next(found, "")

    def _behind(self, at: int, number: int) -> tuple[Token, int]:
        """The token that is so many behind a place, and its place."""
        for place in range(at + 1, len(self.found)):
            number -= self.found[place].kind is not Kind.SPACE
            if number == 0:
                return self.found[place], place
        return Token(Kind.SPACE, ""), len(self.found)


def _is_alias(token: Token) -> bool:
    return token.kind is Kind.NAME and (token.is_quoted or token.value not in _NO_ALIAS)
