"""The pages for users, and the commands that they show: blocks of commands by section, and commands within sentences.

It reads shell as far as pages use it, and runs nothing. What it cannot read ends the test that asks.
"""

import re
import shlex
from collections.abc import Iterator, Sequence
from functools import cache
from pathlib import Path
from typing import Final, NamedTuple

from support.paths import ROOT

SHELL: Final = ("sh", "console")
_FENCE: Final = re.compile(r"^```(\w*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
_SECTION: Final = re.compile(r"^#+ (.*)$", re.MULTILINE)
_INLINE: Final = re.compile(r"`([^`]+)`")
_HEREDOC: Final = re.compile(r"<<'(\w+)'")
_SUBSTITUTION: Final = re.compile(r"\$\(((?:\\[()]|[^()])*)\)")
_SUBSTITUTED: Final = "SUBSTITUTED"
_ASSIGNMENT: Final = re.compile(r"^\w+=")


class Command(NamedTuple):
    """A command of a block as it is typed, with the lines that continue it, and its place."""

    page: str
    section: str
    line: int
    text: str
    output: str = ""
    """What the page shows as its output."""

    @property
    def place(self) -> str:
        """Where to find it."""
        return f"{self.page}:{self.line}"

    @property
    def comment(self) -> str:
        """What the page says about it on the same line."""
        return self.text.splitlines()[0].partition(" #")[2].strip()


def pages() -> list[Path]:
    """The README, and every page in `docs`."""
    return [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]


@cache
def commands() -> tuple[Command, ...]:
    """The commands of every block, page by page."""
    return tuple(command for path in pages() for command in _commands_of(path))


@cache
def inline() -> tuple[Command, ...]:
    """What stands between backticks in sentences and tables."""
    return tuple(command for path in pages() for command in _inline_of(path))


def blocks(page: str, language: str) -> list[tuple[str, str]]:
    """Every block of a language, with its section."""
    text = (ROOT / page).read_text()
    return [(_section(text, found.start()), found[2]) for found in _FENCE.finditer(text) if found[1] == language]


def simple(text: str) -> list[list[str]]:
    """The words of each program that a command runs: of pipes, of lists, and of `$(...)`; without assignments."""
    text = _without_heredoc(text).replace("\\\n", " ")
    found: list[list[str]] = []
    while inner := _SUBSTITUTION.search(text):
        found += simple(inner[1])
        text = text[: inner.start()] + _SUBSTITUTED + text[inner.end() :]
    lexer = shlex.shlex(text, posix=True, punctuation_chars="|&;<>")
    lexer.whitespace_split = True
    words: list[str] = []
    for token in [*lexer, ";"]:
        if set(token) <= set("|&;"):
            found += [words] if words else []
            words = []
        elif words or not _ASSIGNMENT.match(token):
            words.append(token)
    return [_without_redirections(one) for one in found]


def programs(command: Command, *names: str) -> Iterator[list[str]]:
    """The words of each of these programs that a command runs."""
    return (words for words in simple(command.text) if words[0] in names)


def _commands_of(path: Path) -> Iterator[Command]:
    text, page = path.read_text(), str(path.relative_to(ROOT))
    fences = list(_FENCE.finditer(text))
    for place, fence in enumerate(fences):
        if fence[1] not in SHELL:
            continue
        first = text.count("\n", 0, fence.start()) + 2
        after = fences[place + 1] if place + 1 < len(fences) else None
        shown = after is not None and after[1] == "" and not text[fence.end() : after.start()].strip()
        found = [
            Command(page, _section(text, fence.start()), first + offset, typed)
            for offset, typed in _typed(fence[2].splitlines())
        ]
        if shown and after is not None:
            found[-1] = found[-1]._replace(output=after[2])
        yield from found


def _typed(lines: Sequence[str]) -> Iterator[tuple[int, str]]:
    """Each command with the number of its first line."""
    begun: list[str] = []
    for number, line in enumerate(lines):
        begun.append(line)
        typed = "\n".join(begun)
        if _is_whole(typed):
            if typed.strip():
                yield number - len(begun) + 1, typed
            begun = []
    assert not begun, f"a command does not end: {begun}"


def _is_whole(typed: str) -> bool:
    heredoc = _HEREDOC.search(typed)
    if heredoc:
        return typed.splitlines()[-1] == heredoc[1]
    if typed.endswith("\\"):
        return False
    try:
        shlex.split(typed, comments=True)
    except ValueError:  # a quotation goes on
        return False
    return True


def _inline_of(path: Path) -> Iterator[Command]:
    text, page = path.read_text(), str(path.relative_to(ROOT))
    prose = re.sub(r"^ *```.*?^ *```", lambda found: "\n" * found[0].count("\n"), text, flags=re.MULTILINE | re.DOTALL)
    for found in _INLINE.finditer(prose):
        line = prose.count("\n", 0, found.start()) + 1
        yield Command(page, _section(prose, found.start()), line, " ".join(found[1].split()))


def _section(text: str, place: int) -> str:
    headings = _SECTION.findall(re.sub(r"^```.*?^```$", "", text[:place], flags=re.MULTILINE | re.DOTALL))
    return str(headings[-1])


def _without_heredoc(text: str) -> str:
    heredoc = _HEREDOC.search(text)
    return text if heredoc is None else text.splitlines()[0]


def _without_redirections(words: list[str]) -> list[str]:
    kept: list[str] = []
    for place, word in enumerate(words):
        if not set(word) <= set("<>") and not (place and set(words[place - 1]) <= set("<>")):
            kept.append(word)
    return kept
