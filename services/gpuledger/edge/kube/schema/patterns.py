"""Translates Go's regular expressions (RE2) for Python's engine.

RE2 has no lookaround and no back references, its `$` is the very end, and it has POSIX classes. A pattern matches
anywhere unless it is anchored.
"""

import re
from functools import lru_cache

CACHED_PATTERNS = 1024

_POSIX = {
    "alnum": "0-9A-Za-z",
    "alpha": "A-Za-z",
    "ascii": r"\x00-\x7F",
    "blank": r"\t ",
    "cntrl": r"\x00-\x1F\x7F",
    "digit": "0-9",
    "graph": "!-~",
    "lower": "a-z",
    "print": " -~",
    "punct": r"!-/:-@\[-`{-~",
    "space": r"\t\n\v\f\r ",
    "upper": "A-Z",
    "word": "0-9A-Za-z_",
    "xdigit": "0-9A-Fa-f",
}
_TOKEN = re.compile(r"\\Q(.*?)(?:\\E|$)|\\x\{([0-9A-Fa-f]+)\}|\\.|\[:(\w+):\]|\(\?[=!]|\(\?<[=!]|.", re.DOTALL)


def matches(pattern: str, value: str) -> bool:
    """Whether the pattern occurs in the value; False for an invalid pattern."""
    try:
        return compiled(pattern).search(value) is not None
    except re.error:
        return False


@lru_cache(maxsize=CACHED_PATTERNS)
def compiled(pattern: str) -> re.Pattern[str]:
    """The pattern for Python's engine; raises `re.error` if RE2 refuses it."""
    inside = False
    parts = []
    for token in _TOKEN.finditer(pattern):
        part = _translated(token, inside=inside)
        parts.append(part)
        if token[0] == "[" or token[0] == "]":
            inside = _inside(token, inside=inside)
    return re.compile("".join(parts), re.ASCII)


def _translated(token: re.Match[str], *, inside: bool) -> str:
    text = token[0]
    if text.startswith("\\Q"):
        return re.escape(token[1])
    if token[2]:
        return re.escape(chr(int(token[2], 16)))
    if token[3] and inside:
        return _POSIX.get(token[3], text)
    if inside:
        return r"\[" if text == "[" else text
    if text.startswith(("(?=", "(?!", "(?<=", "(?<!")) or (text[0] == "\\" and text[1:].isdigit() and text != "\\0"):
        raise re.error("invalid or unsupported Perl syntax", text)
    return r"\Z" if text in {"$", r"\z"} else text


def _inside(token: re.Match[str], *, inside: bool) -> bool:
    before = token.string[: token.start()]
    if token[0] == "[":
        return True
    return inside and before.endswith(("[", "[^")) and not before.endswith(("\\[", "\\[^"))
