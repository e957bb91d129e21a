"""Rewrites Kubernetes' CEL for the CEL library, and finds the names that an expression refers to.

The library lacks optional selection (`a.?b`), `cel.bind`, comprehensions over two variables and `optMap`; each becomes
an expression of functions and macros that it has. Nothing is evaluated here.
"""

import re
from collections.abc import Iterator, Set

_TOKEN = re.compile(
    r"""\s+|//[^\n]*
    |(?P<token>[rRbB]{0,2}(?:\"\"\".*?\"\"\"|'''.*?''')
    |[rR][bB]?(?:"[^"]*"|'[^']*')|[bB]?(?:"(?:\\.|[^"\\])*"|'(?:\\.|[^'\\])*')
    |0[xX][0-9a-fA-F]+[uU]?|\d+\.\d+(?:[eE][+-]?\d+)?|\.\d+(?:[eE][+-]?\d+)?(?<![\w)\]]\.)|\d+(?:[eE][+-]?\d+)?[uU]?
    |[A-Za-z_]\w*|\.\?|\[\?|==|!=|<=|>=|&&|\|\||.)""",
    re.VERBOSE | re.DOTALL,
)
_NAME = re.compile(r"[A-Za-z_]\w*")
_CLOSING = {"(": ")", "[": "]", "[?": "]", "{": "}"}
_MACROS = frozenset({"all", "exists", "exists_one", "existsOne", "map", "filter", "optMap", "optFlatMap", "bind"})
_TWO_VARIABLES = frozenset({"all", "exists", "exists_one", "existsOne", "transformList"})
_RENAMED = {"size": "kSize", "existsOne": "exists_one"}

Tokens = list[str]


def tokens_of(source: str) -> Tokens:
    """The tokens of an expression, without blanks and comments."""
    return [found["token"] for found in _TOKEN.finditer(source) if found["token"]]


def rewritten(source: str) -> str:
    """The expression for the library; unknown parts stay unchanged."""
    return " ".join(_rewrite(tokens_of(source)))


def bound_names(source: str) -> frozenset[str]:
    """The variables that macros bind."""
    tokens = tokens_of(source)
    found: set[str] = set()
    for i, name in enumerate(tokens[:-2]):
        if name in _MACROS | {"transformList"} and tokens[i + 1] == "(":
            found.update(one for one in tokens[i + 2 : i + 5 : 2] if _NAME.fullmatch(one))
    return frozenset(found)


def selections(source: str, variables: Set[str]) -> Iterator[list[str]]:
    """The variables of these from which fields are selected, each with the chain of fields, method names left out."""
    tokens = [*tokens_of(source), "", ""]
    for i, name in enumerate(tokens):
        if name not in variables or (i and tokens[i - 1] in {".", ".?"}):
            continue
        chain = [name]
        at = i + 1
        while tokens[at] in {".", ".?"} and _NAME.fullmatch(tokens[at + 1]) and tokens[at + 2] != "(":
            chain.append(tokens[at + 1])
            at += 2
        if chain[1:]:
            yield chain


def selected_fields(source: str, variable: str) -> frozenset[str] | None:
    """The fields that an expression selects from a variable by their names; None where it may use any."""
    tokens, found = [*tokens_of(source), "", "", ""], set[str]()
    for i, name in enumerate(tokens):
        if name != variable or (i and tokens[i - 1] in {".", ".?"}):
            continue
        if tokens[i + 1] != "." or not _NAME.fullmatch(tokens[i + 2]) or tokens[i + 3] == "(":
            return None
        found.add(tokens[i + 2])
    return frozenset(found)


def mentions(source: str, name: str) -> bool:
    """Whether an expression uses a variable."""
    tokens = tokens_of(source)
    return any(one == name and (not i or tokens[i - 1] not in {".", ".?"}) for i, one in enumerate(tokens))


def with_calls(source: str, variable: str, function: str) -> str:
    """The expression with each field selected from a variable as the first item that a function of its name gives."""
    out: Tokens = []
    tokens, at = [*tokens_of(source), "", ""], 0
    while tokens[at]:
        is_selected = tokens[at] == variable and (not at or tokens[at - 1] not in {".", ".?"}) and tokens[at + 1] == "."
        if is_selected and _NAME.fullmatch(tokens[at + 2]):
            out += [function, "(", f'"{tokens[at + 2]}"', ")", "[", "0", "]"]
            at += 3
        else:
            out.append(tokens[at])
            at += 1
    return " ".join(out)


def _rewrite(tokens: Tokens) -> Tokens:
    out: Tokens = []
    at, optional = 0, False
    while at < len(tokens):
        token = tokens[at]
        if token in _CLOSING:
            end = _matching(tokens, at)
            out += _bracket(token, tokens[at + 1 : end], optional=optional)
            at = end + 1
        elif token == ".?" or (token == "." and optional and _selects(tokens, at)):
            out += [".", "optField", "(", f'"{tokens[at + 1]}"', ")"]
            at, optional = at + 2, True
        elif _calls(tokens, at):
            at = _call(tokens, at, out)
            optional = False
        else:
            out.append(token)
            optional = optional and token == "."
            at += 1
    return out


def _bracket(token: str, inside: Tokens, *, optional: bool) -> Tokens:
    body = _rewrite(inside)
    if token == "[?" or (token == "[" and optional):
        return [".", "optIndex", "(", *body, ")"]
    return [token, *body, _CLOSING[token]]


def _call(tokens: Tokens, at: int, out: Tokens) -> int:
    end = _matching(tokens, at + 1)
    name = tokens[at]
    arguments = [_rewrite(one) for one in _arguments(tokens[at + 2 : end])]
    if name == "bind" and out[-2:] == ["cel", "."] and len(arguments) == 3:
        del out[-2:]
        variable, value, body = arguments
        out += _bind(variable, value, body)
    elif name in {"optMap", "optFlatMap"} and len(arguments) == 2:
        rest = ["optFirst" if name == "optMap" else "optOnly", "(", ")"]
        out += ["optList", "(", ")", ".", "map", "(", *_joined(arguments), ")", ".", *rest]
    elif name in _TWO_VARIABLES and len(arguments) >= 3:
        out += _over_two(name, arguments)
    else:
        out += [_RENAMED.get(name, name), "(", *_joined(arguments), ")"]
    return end + 1


def _over_two(name: str, arguments: list[Tokens]) -> Tokens:
    key, value, *bodies = arguments

    def inner(body: Tokens) -> Tokens:
        return _bind(key, ["kEntry", ".", "k"], _bind(value, ["kEntry", ".", "v"], body))

    macro = "map" if name == "transformList" else _RENAMED.get(name, name)
    return ["kEntries", "(", ")", ".", macro, "(", "kEntry", ",", *_joined([inner(one) for one in bodies]), ")"]


def _bind(variable: Tokens, value: Tokens, body: Tokens) -> Tokens:
    return ["[", *value, "]", ".", "map", "(", *variable, ",", *body, ")", "[", "0", "]"]


def _arguments(tokens: Tokens) -> list[Tokens]:
    found: list[Tokens] = [[]]
    at = 0
    while at < len(tokens):
        end = _matching(tokens, at) if tokens[at] in _CLOSING else at
        if tokens[at] == ",":
            found.append([])
        else:
            found[-1] += tokens[at : end + 1]
        at = end + 1
    return found if tokens else []


def _joined(arguments: list[Tokens]) -> Tokens:
    return [token for i, one in enumerate(arguments) for token in ([",", *one] if i else one)]


def _matching(tokens: Tokens, at: int) -> int:
    depth = 0
    for i in range(at, len(tokens)):
        depth += (tokens[i] in _CLOSING) - (tokens[i] in {")", "]", "}"})
        if not depth:
            return i
    raise ValueError("an opening bracket is never closed")


def _selects(tokens: Tokens, at: int) -> bool:
    return at + 1 < len(tokens) and bool(_NAME.fullmatch(tokens[at + 1])) and tokens[at + 2 : at + 3] != ["("]


def _calls(tokens: Tokens, at: int) -> bool:
    return bool(_NAME.fullmatch(tokens[at])) and tokens[at + 1 : at + 2] == ["("]
