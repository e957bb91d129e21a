"""Errors that fail an import as a whole; a bad row is a `Reject` instead.

ImporterError
├── ImportFileError      a file cannot be read, changed while it was read, or the temporary folder cannot be written
├── ImportFormatError    a file is not in the requested format
└── RowError             one row cannot be imported; never leaves this package
"""


class ImporterError(Exception):
    """An import fails."""


class ImportFileError(ImporterError):
    """A file cannot be read, changed while it was read, or the temporary folder cannot be written."""


class ImportFormatError(ImporterError):
    """The file is not in the requested format; nothing is imported."""


class RowError(ImporterError):
    """The row cannot be imported; the message is the reason that the user reads."""
