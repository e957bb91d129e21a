"""Everything that commands show: tables, pages, documents, charts, messages and progress.

A command makes rows and a `View`; it must never print to stdout itself.
"""

from gpuledger.cli.render.rows import render
from gpuledger.cli.render.terminal import (
    Console,
    ReaderLeftError,
    TerminalReporter,
    ending_with_reader,
    message,
    message_unless_closed,
    progress,
    quiet_pipe,
)
from gpuledger.cli.render.view import Column, Output, View, columns_of

__all__ = [
    "Column",
    "Console",
    "Output",
    "ReaderLeftError",
    "TerminalReporter",
    "View",
    "columns_of",
    "ending_with_reader",
    "message",
    "message_unless_closed",
    "progress",
    "quiet_pipe",
    "render",
]
