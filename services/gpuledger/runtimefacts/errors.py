"""What can go wrong in the folder between the runtime proxy and the agent.

RuntimeFactsError
├── FactsFolderError       the disk
└── UnreadableFactError    what a file holds
"""


class RuntimeFactsError(Exception):
    """The message says what is wrong and where."""


class FactsFolderError(RuntimeFactsError):
    """The disk takes, gives or removes no file."""


class UnreadableFactError(RuntimeFactsError):
    """A file does not hold what it should."""
