"""What all parsers of other tools' output do to a text first. Pure."""

import re
from typing import Final

TEXT_MAX: Final = 8 * 1024 * 1024
"""The most characters of an output that are looked at: its end, where tools write what came of a run."""

MESSAGE_MAX: Final = 1000
"""The most characters of a message that is passed on."""

LINE_MAX: Final = 200
"""The most characters of a line that is quoted only to show what an output is."""

_CONTROL: Final = re.compile(r"\x1b\[[0-9;]{0,20}[A-Za-z]|[\x00-\x08\x0b-\x1f\x7f]")
"""Colours of terminals, and characters that no tool means; tabs and ends of lines stay."""


def cleaned(text: str) -> str:
    """The end of an output, without what terminals and broken encodings leave in it."""
    return _CONTROL.sub("", text[-TEXT_MAX:].replace("\r\n", "\n")).encode(errors="replace").decode()


def message_of(text: str) -> str:
    """A message as one line, cut to `MESSAGE_MAX` characters."""
    return " ".join(text.split())[:MESSAGE_MAX]


def first_line(text: str) -> str:
    """The beginning of the first line with text in it, as a message; empty where there is none."""
    return message_of(text.lstrip().partition("\n")[0])[:LINE_MAX]
