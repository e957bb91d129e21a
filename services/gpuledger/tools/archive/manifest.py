"""What an archive says of itself: per generation one manifest, which names every file and the chain of digests. Pure.

A file belongs to the archive once the manifest names it; what it does not name is nobody's. A file that retention
deleted keeps its entry as a tombstone: positions and digests remain, so that the chain behind it can still be proven.
"""

from collections.abc import Sequence
from datetime import datetime
from typing import Annotated, Final, Literal, TypeVar

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from gpuledger.events.position import Offset, Position, is_after, is_same, next_after, number_of
from gpuledger.ledger.identity import Closed, Continued, LedgerIdentity, Predecessor
from gpuledger.ledger.stream import stream_name
from gpuledger.tools.errors import ToolError

INDEX: Final = "ledger.json"
MANIFEST: Final = "manifest.json"
EVENTS: Final = "events"
TABLES: Final = "tables"

_Sha256 = Annotated[str, Field(pattern="^[0-9a-f]{64}$")]
_Number = Annotated[int, Field(ge=1)]
_Count = Annotated[int, Field(ge=0)]
_Text = Annotated[str, Field(min_length=1, max_length=256)]


class _Part(BaseModel):
    """What validates a part is built when the first one is read: most commands read none."""

    model_config = ConfigDict(frozen=True, extra="ignore", defer_build=True)


P = TypeVar("P", bound=_Part)


class Tombstone(_Part):
    """Who deleted a file, when and why."""

    at: datetime
    by: _Text
    reason: _Text


class EventsEntry(_Part):
    """A file of events that stand one behind the other in the log, all recorded in one month (UTC).

    `link` is the chain's link at `last`, `last_digest` the digest of the message there as a checkpoint has it; `sha256`
    is of the file, and `bytes` its size.
    """

    month: Annotated[str, Field(pattern=r"^\d{4}-\d{2}$")]
    first: _Number
    last: _Number
    first_recorded_ns: int
    last_recorded_ns: int
    bytes: _Count
    sha256: _Sha256
    link: _Sha256
    last_digest: _Sha256
    deleted: Tombstone | None = None

    @property
    def events(self) -> int:
        """How many events the file has, or had."""
        return self.last - self.first + 1

    @property
    def path(self) -> str:
        """Where the file is below the generation's folder; DuckDB and others read the month from it."""
        return f"{EVENTS}/month={self.month}/{self.first:012d}-{self.last:012d}.parquet"


class TableEntry(_Part):
    """Rows of a table or report, all of them or a part, as they were when its projection had folded up to a position.

    A report is of no single projection; its position is that up to which all had folded. `json_columns` are text that
    is JSON.
    """

    table: Annotated[str, Field(pattern=r"^[a-z_]+\.[a-z0-9_]+$")]
    projection: _Text | None = None
    position: _Count
    rows: _Count
    json_columns: tuple[Annotated[str, Field(pattern="^[a-z0-9_]+$")], ...] = ()
    path: Annotated[str, Field(pattern=r"^tables/[A-Za-z0-9_./]+\.parquet$")]
    bytes: _Count
    sha256: _Sha256


class PredecessorEntry(_Part):
    """How the generation before ended."""

    head: _Count
    digest: Annotated[str, Field(pattern="^([0-9a-f]{64})?$")]


class ClosedEntry(_Part):
    """A closed generation before this one, the place behind which it begins, and where it is archived."""

    generation: _Number
    behind: _Count
    archive: Annotated[str, Field(min_length=1)]


class ContinuedEntry(_Part):
    """What a generation has that goes on where another was closed; see `gpuledger.ledger.identity.Continued`."""

    closed: tuple[ClosedEntry, ...]
    beginning: Annotated[str, Field(pattern="^([0-9a-f]{64})?$")]
    link: _Sha256
    carried: _Count


class Manifest(_Part):
    """The archive of one generation of a ledger."""

    format: Literal["gpuledger-archive"] = "gpuledger-archive"
    version: Literal[1] = 1
    ledger_id: _Text
    generation: _Number
    partition: Literal[0] = 0
    predecessor: PredecessorEntry | None = None
    continued: ContinuedEntry | None = None
    files: tuple[EventsEntry, ...] = ()
    tables: tuple[TableEntry, ...] = ()
    tables_at: datetime | None = None

    @classmethod
    def of(cls, identity: LedgerIdentity) -> "Manifest":
        """The manifest of a generation of which nothing is archived yet."""
        before = identity.predecessor
        predecessor = None if before is None else PredecessorEntry(head=number_of(before.head), digest=before.digest)
        continued = None if identity.continued is None else _entry_of(identity.continued)
        return cls(
            ledger_id=identity.ledger_id,
            generation=identity.generation,
            predecessor=predecessor,
            continued=continued,
        )

    @property
    def identity(self) -> LedgerIdentity:
        """The generation that it is of."""
        before = self.predecessor
        return LedgerIdentity(
            self.ledger_id,
            self.generation,
            None if before is None else Predecessor(before.head, before.digest),
            None if self.continued is None else _continued_of(self.continued),
        )

    @property
    def first_link(self) -> str:
        """The chain's link before the first event."""
        return self.identity.link

    @property
    def link(self) -> str:
        """The chain's link at the last event."""
        return self.files[-1].link if self.files else self.first_link

    @property
    def end(self) -> Offset:
        """The sequence of the last event; where the generation begins for none."""
        return self.files[-1].last if self.files else self.identity.behind

    @property
    def until(self) -> Position:
        """The position of the last event."""
        return Position(self.generation, self.end)

    @property
    def events(self) -> int:
        """How many events its files have."""
        return sum(one.events for one in self.kept)

    @property
    def kept(self) -> Sequence[EventsEntry]:
        """The files that were not deleted."""
        return [one for one in self.files if one.deleted is None]

    def with_file(self, entry: EventsEntry) -> "Manifest":
        """The manifest with one file more."""
        return self.model_copy(update={"files": (*self.files, entry)})

    def with_tables(self, tables: Sequence[TableEntry], at: datetime) -> "Manifest":
        """The manifest with these tables and no others."""
        return self.model_copy(update={"tables": tuple(tables), "tables_at": at})

    def with_files(self, files: Sequence[EventsEntry]) -> "Manifest":
        """The manifest with these files."""
        return self.model_copy(update={"files": tuple(files)})

    def encode(self) -> bytes:
        """The manifest as JSON for people and programs."""
        return _encoded(self)


def _entry_of(continued: Continued) -> ContinuedEntry:
    closed = tuple(ClosedEntry(**one._asdict()) for one in continued.closed)
    return ContinuedEntry(closed=closed, beginning=continued.beginning, link=continued.link, carried=continued.carried)


def _continued_of(entry: ContinuedEntry) -> Continued:
    closed = tuple(Closed(one.generation, one.behind, one.archive) for one in entry.closed)
    return Continued(closed, entry.beginning, entry.link, entry.carried)


class Index(_Part):
    """The ledger of an archive, and the generations of it that have a folder."""

    format: Literal["gpuledger-archive"] = "gpuledger-archive"
    version: Literal[1] = 1
    ledger_id: _Text
    generations: tuple[_Number, ...] = ()

    def encode(self) -> bytes:
        """The index as JSON."""
        return _encoded(self)


def _encoded(part: _Part) -> bytes:
    return part.model_dump_json(indent=1, exclude_none=True).encode() + b"\n"


def folder_of(generation: int) -> str:
    """The folder of a generation, named as its stream."""
    return stream_name(generation)


def key_of(generation: int, path: str = MANIFEST) -> str:
    """The key of a generation's file; without a path that of its manifest."""
    return f"{folder_of(generation)}/{path}"


def decode_index(raw: bytes, where: str) -> Index:
    """The index in these bytes; `where` names it in errors.

    Raises:
        ToolError: it is none, or of a later version.
    """
    return _decoded(Index, raw, where)


def decode_manifest(raw: bytes, where: str, index: Index, generation: int) -> Manifest:
    """The manifest of a generation in these bytes; `where` names it in errors.

    Raises:
        ToolError: it is none, of a later version, or contradicts the index or itself.
    """
    manifest = _decoded(Manifest, raw, where)
    problem = _problem(manifest, index, generation)
    if problem is not None:
        raise ToolError(f"{where} is damaged: {problem}", "Take it from a copy of the archive")
    return manifest


def _decoded(kind: type[P], raw: bytes, where: str) -> P:
    try:
        return kind.model_validate_json(raw)
    except ValidationError as error:
        first = error.errors()[0]
        place = ".".join(str(one) for one in first["loc"]) or "its JSON"
        raise ToolError(
            f"{where} is nothing that this build reads: {place}: {first['msg']}",
            "Name the location that `gpuledger log archive write` was given, or use the gpuledger that wrote it",
        ) from error


def _problem(manifest: Manifest, index: Index, generation: int) -> str | None:
    if (manifest.ledger_id, manifest.generation) != (index.ledger_id, generation):
        return f"it is of generation {manifest.generation} of the ledger {manifest.ledger_id}, and stands elsewhere"
    end = manifest.identity.behind
    for one in manifest.files:
        if not is_same(one.first, next_after(end)) or is_after(one.first, one.last):
            return f"its file {one.path} does not follow position {end}"
        end = one.last
    return None
