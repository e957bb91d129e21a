"""The folder in which the runtime proxy and the node's agent hand each other files, each while the other may be away.

A node may have no ledger, no agent or no proxy for a while; pods start all the same. So the proxy leaves its facts as
files that the agent records and removes, and the agent leaves what it knows of the node's devices as one file. Files
appear whole: they are written beside their place and renamed. The folder is for root alone.
"""

import os
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from datetime import datetime
from pathlib import Path
from typing import Any, Final, NamedTuple

import orjson

from gpuledger.runtime.clock import NewId
from gpuledger.runtimefacts.errors import FactsFolderError, UnreadableFactError

FACTS: Final = "facts"
NODE: Final = "node.json"
SUFFIX: Final = ".json"
PART: Final = ".part"

FACTS_MAX: Final = 10_000
"""So many facts wait for the agent; the oldest are dropped. A kubelet starts a few containers a second at most."""

FACT_BYTES_MAX: Final = 1024 * 1024
PRIVATE_FOLDER: Final = 0o700
_DIGITS: Final = 12


class StoredFact(NamedTuple):
    """A fact as its file has it."""

    type: str
    time: datetime
    data: Any


class FactsFolder:
    """The facts in a folder, by file name in the order in which they were put."""

    def __init__(self, root: Path) -> None:
        self._root = root
        self._facts = root / FACTS

    def put(self, fact: StoredFact, new_id: NewId, *, replaces: bool = False) -> int:
        """Add a fact, which is on disk when this returns; returns how many were dropped for want of room.

        One that `replaces` earlier ones of its type takes their place.

        Raises:
            FactsFolderError: the disk takes no file.
        """
        with _translated(self._facts):
            self._facts.mkdir(mode=PRIVATE_FOLDER, parents=True, exist_ok=True)
            names = self.names()
            if replaces:
                names = self._without(names, fact.type)
            dropped = names[: max(0, len(names) + 1 - FACTS_MAX)]
            self._remove(dropped)
            number = int(names[-1][:_DIGITS]) + 1 if names else 1
            kind = fact.type.replace("/", "_")
            name = f"{number:0{_DIGITS}}-{kind}-{new_id()}{SUFFIX}"
            document = {"type": fact.type, "time": fact.time, "data": fact.data}
            _write(self._facts / name, orjson.dumps(document))
        return len(dropped)

    def names(self) -> list[str]:
        """The names of all facts, the oldest first.

        Raises:
            FactsFolderError: the folder cannot be read.
        """
        with _translated(self._facts):
            try:
                found = [path.name for path in self._facts.iterdir()]
            except FileNotFoundError:
                return []
        return sorted(name for name in found if name.endswith(SUFFIX) and name[:_DIGITS].isdigit())

    def read(self, name: str) -> StoredFact:
        """One fact.

        Raises:
            UnreadableFactError: the file is no fact.
            FactsFolderError: it cannot be read.
        """
        path = self._facts / name
        with _translated(path):
            if path.stat().st_size > FACT_BYTES_MAX:
                raise UnreadableFactError(f"{path} has more than {FACT_BYTES_MAX} bytes, so it is no fact.")
            raw = path.read_bytes()
        try:
            document = orjson.loads(raw)
            return StoredFact(str(document["type"]), datetime.fromisoformat(document["time"]), document["data"])
        except (ValueError, KeyError, TypeError) as error:
            raise UnreadableFactError(f"{path} is no fact: {error!r}.") from error

    def remove(self, names: Iterable[str]) -> None:
        """Remove facts, those that are gone already included.

        Raises:
            FactsFolderError: the disk removes no file.
        """
        with _translated(self._facts):
            self._remove(names)

    def write_node(self, document: object) -> None:
        """Replace what the agent knows of the node, as JSON.

        Raises:
            FactsFolderError: the disk takes no file.
        """
        with _translated(self._root):
            self._root.mkdir(mode=PRIVATE_FOLDER, parents=True, exist_ok=True)
            _write(self._root / NODE, orjson.dumps(document))

    def _without(self, names: list[str], kind: str) -> list[str]:
        """Remove the facts of a type; returns the names of the others."""
        ours = f"-{kind.replace('/', '_')}-"
        self._remove(name for name in names if ours in name)
        return [name for name in names if ours not in name]

    def _remove(self, names: Iterable[str]) -> None:
        for name in names:
            (self._facts / name).unlink(missing_ok=True)


class NodeFile:
    """What the agent knows of the node, read again whenever the agent has replaced it."""

    def __init__(self, root: Path, read: Callable[[Any], Any]) -> None:
        self._path = root / NODE
        self._read = read
        self._identity: tuple[int, int, int] | None = None
        self._value: Any = None

    def value(self) -> Any:  # noqa: ANN401 - what `read` makes of the document
        """What `read` makes of the document, of None where there is none yet.

        Raises:
            FactsFolderError: the file cannot be read.
            UnreadableFactError: it holds no JSON.
        """
        with _translated(self._path):
            try:
                status = self._path.stat()
            except FileNotFoundError:
                return self._read(None)
            identity = (status.st_ino, status.st_mtime_ns, status.st_size)
            if identity != self._identity:
                raw = self._path.read_bytes()
                try:
                    self._value = self._read(orjson.loads(raw))
                except ValueError as error:
                    raise UnreadableFactError(f"{self._path} cannot be read: {error}.") from error
                self._identity = identity
        return self._value


@contextmanager
def _translated(path: Path) -> Iterator[None]:
    """Errors of the disk as ours."""
    try:
        yield
    except OSError as error:
        raise FactsFolderError(f"{path}: {error.strerror or error}. See the node's disk.") from error


def _write(path: Path, content: bytes) -> None:
    """Write a file so that it is there as a whole, or not at all."""
    part = path.with_name(f"{path.name}{PART}")
    with part.open("wb") as file:
        file.write(content)
        file.flush()
        os.fsync(file.fileno())
    part.replace(path)
