"""Errors of the servers that gpuledger starts itself.

EmbeddedError
├── ServerBinaryMissingError
├── PrivilegesError
├── ServerStartError
│   ├── PortTakenError
│   └── StartAbortedError
└── DataDirError
    ├── DataDirUnusableError
    ├── ForeignDataDirError
    ├── DataDirFormatError
    └── DataDirBusyError
"""


class EmbeddedError(Exception):
    """An embedded server or its data directory cannot be used; the message says what to do next."""


class ServerBinaryMissingError(EmbeddedError):
    """The program of an embedded server is not installed."""


class PrivilegesError(EmbeddedError):
    """PostgreSQL refuses to run as root, and gpuledger cannot run it as another user."""


class ServerStartError(EmbeddedError):
    """A server ended, or did not answer in time, while it was starting."""


class PortTakenError(ServerStartError):
    """Another program listens on the server's port."""


class StartAbortedError(ServerStartError):
    """The start was aborted because its caller is stopping."""


class DataDirError(EmbeddedError):
    """A data directory cannot be used."""


class DataDirUnusableError(DataDirError):
    """The path is not a directory that can be created, read and written."""


class ForeignDataDirError(DataDirError):
    """The directory holds files that gpuledger did not put there."""


class DataDirFormatError(DataDirError):
    """The directory was written by a newer gpuledger, or its marker file is damaged."""


class DataDirBusyError(DataDirError):
    """Another gpuledger process uses the directory."""
