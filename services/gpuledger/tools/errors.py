"""Why a tool cannot answer: one sentence and a next step, in the words that the person at the terminal reads.

ToolError
├── RequestError         the request is wrong or ambiguous; nothing was done
└── ToolBusyError        another process is at work that must end first
"""


class ToolError(Exception):
    """A tool cannot do what was requested; `hint` is what the user can do about it."""

    def __init__(self, message: str, hint: str = "") -> None:
        super().__init__(message)
        self.message = message
        self.hint = hint

    def __str__(self) -> str:
        return " ".join(_sentence(part) for part in (self.message, self.hint) if part.strip())


class RequestError(ToolError):
    """The request is wrong or ambiguous; nothing was done."""


class ToolBusyError(ToolError):
    """Another process is at work that must end first."""


def _sentence(text: str) -> str:
    line = " ".join(text.split())
    return line if line.endswith((".", "?", "!")) else f"{line}."
