"""A file of the host as it is, and as it is to be. Pure."""

from hashlib import sha256
from typing import Final, NamedTuple


class FileStatus(NamedTuple):
    """What is at a path. `kind` is `absent`, `file`, `link`, `folder` or `other`; the rest is that of a file.

    `hash` is the SHA-256 of its content, empty where it is too large to be one of ours.
    """

    kind: str
    hash: str = ""
    mode: int = 0
    uid: int = 0
    gid: int = 0
    target: str = ""


ABSENT: Final = FileStatus("absent")


class NewFile(NamedTuple):
    """A file to write."""

    path: str
    content: bytes
    mode: int
    uid: int
    gid: int


def file_status(new: NewFile) -> FileStatus:
    """What is there once a file is written."""
    return FileStatus("file", sha256(new.content).hexdigest(), new.mode, new.uid, new.gid)
