"""What a snapshot of a fold in the object store consists of, and what its objects are called. Pure.

A manifest names the pieces of one snapshot by the digests of their contents, so that snapshots share what did not
change between them. It is written last: what it names is there.
"""

import re
from collections.abc import Iterable, Iterator, Mapping
from datetime import UTC, datetime
from hashlib import sha256
from typing import Any, Final, NamedTuple

import orjson

from gpuledger.events.position import ORIGIN, Generations, Offset, Position, number_of, order
from gpuledger.ledger.identity import Anchor, LedgerIdentity
from gpuledger.projection.definition import Projection
from gpuledger.projection.outstanding import NOTHING_CHANGED, ChangedDecisions
from gpuledger.projection.snapshot import layout_of

FORMAT: Final = 1
"""How manifests and pieces are written; another way is another layout."""

_TOP: Final = "snapshots"
_MANIFEST: Final = re.compile(
    rf"{_TOP}/[^/]+/folds/[0-9]+/[^/]+/[^/]+/(?P<sequence>[0-9]{{20}})-(?P<time>[0-9]{{8}}T[0-9]{{6}}Z)\.json"
)
_DIGEST: Final = re.compile(r"\b[0-9a-f]{64}\b")
_TIME: Final = "%Y%m%dT%H%M%SZ"
_UNIX: Final = datetime(1970, 1, 1, tzinfo=UTC)


class ManifestError(Exception):
    """What is stored is no manifest that this build reads, or not the one that was written."""


class PieceRef(NamedTuple):
    """Some rows of a table, in the object that its digest names; `size` in bytes."""

    digest: str
    rows: int
    size: int


class TablePieces(NamedTuple):
    """The pieces of a table.

    `live` are the rows that a fold holds in memory, in as many buckets by their keys; a bucket without rows has None.
    `retired` are the rows that left memory, in the order in which they did: of two rows with one key the later counts,
    and a live one before both.
    """

    live: tuple[PieceRef | None, ...] = ()
    retired: tuple[PieceRef, ...] = ()

    def refs(self) -> Iterator[PieceRef]:
        """All of them."""
        yield from (one for one in self.live if one is not None)
        yield from self.retired


class Place(NamedTuple):
    """Where a snapshot stands: the last event that is part of it, and when that was recorded, to the second."""

    sequence: Offset
    recorded_at: datetime

    @property
    def order(self) -> int:
        """Sorts places by the log."""
        return order(self.sequence)


class FoldKey(NamedTuple):
    """Whose snapshots read each other: one fold, in one layout, of a ledger's generations in one numbering.

    `generation` is the first of these.
    """

    ledger_id: str
    generation: int
    projection: str
    layout: str

    @property
    def folder(self) -> str:
        """Where its manifests are."""
        return f"{folds_folder(self.ledger_id)}/{self.generation}/{self.projection}/{self.layout}"

    def manifest_key(self, place: "Place") -> str:
        """The object of the manifest at a place."""
        return f"{self.folder}/{number_of(place.sequence):020d}-{place.recorded_at.strftime(_TIME)}.json"

    def piece_key(self, digest: str) -> str:
        """The object of a piece."""
        return f"{pieces_folder(self.ledger_id)}/{digest[:2]}/{digest}.parquet"


class SnapshotManifest(NamedTuple):
    """One snapshot: the state of a fold behind the event of the anchor.

    `events` have been counted since the log began, `next_number` is that of the fold's next decision, `skips` are the
    positions up to there that operators decided to pass over, and `changed` are the decisions that came back with
    another content. `build` is for people.
    """

    key: FoldKey
    anchor: Anchor
    recorded_at: datetime
    build: str
    events: int
    next_number: int
    skips: tuple[Offset, ...]
    changed: ChangedDecisions
    tables: Mapping[str, TablePieces]

    @property
    def place(self) -> Place:
        """Where it stands."""
        return Place(self.anchor.sequence, self.recorded_at)

    @property
    def at(self) -> Position:
        """The position of the last event that is part of it."""
        return Position(self.key.generation, self.anchor.sequence)

    @property
    def rows(self) -> int:
        """How many rows its pieces have."""
        return sum(one.rows for one in self.refs())

    @property
    def size(self) -> int:
        """How many bytes its pieces have."""
        return sum(one.size for one in {one.digest: one for one in self.refs()}.values())

    def refs(self) -> Iterator[PieceRef]:
        """All of its pieces."""
        for pieces in self.tables.values():
            yield from pieces.refs()


def fold_key(projection: Projection, identity: LedgerIdentity) -> FoldKey:
    """Whose snapshots a projection of this build reads and writes in a ledger."""
    layout = layout_of(projection, projection.new_state())
    name = f"v{layout.version}-f{FORMAT}-{layout.digest}"
    return FoldKey(identity.ledger_id, identity.generations.first, projection.name, name)


def empty_manifest(key: FoldKey) -> SnapshotManifest:
    """The state of a fold before the first event."""
    return SnapshotManifest(key, Anchor(ORIGIN, "", ""), _UNIX, "", 0, 1, (), NOTHING_CHANGED, {})


def ledger_folder(ledger_id: str) -> str:
    """Where everything of a ledger is."""
    return f"{_TOP}/{ledger_id}"


def folds_folder(ledger_id: str) -> str:
    """Where the manifests of a ledger's snapshots are."""
    return f"{ledger_folder(ledger_id)}/folds"


def pieces_folder(ledger_id: str) -> str:
    """Where the pieces of a ledger's snapshots are."""
    return f"{ledger_folder(ledger_id)}/pieces"


def place_of_key(key: str) -> Place | None:
    """Where the manifest stands that an object is; None where it is none."""
    match = _MANIFEST.fullmatch(key)
    if match is None:
        return None
    return Place(int(match["sequence"]), datetime.strptime(match["time"], _TIME).replace(tzinfo=UTC))


def digest_of_key(key: str) -> str:
    """The digest of the piece that an object is."""
    return key.rpartition("/")[2].partition(".")[0]


def encode_manifest(manifest: SnapshotManifest) -> bytes:
    """The manifest as it is stored: the digest of what follows, and that."""
    body = orjson.dumps(
        {
            "format": FORMAT,
            **manifest.key._asdict(),
            "anchor": [number_of(manifest.anchor.sequence), manifest.anchor.event_id, manifest.anchor.digest],
            "recorded_at": manifest.recorded_at.strftime(_TIME),
            "build": manifest.build,
            "events": manifest.events,
            "next_number": manifest.next_number,
            "skips": [number_of(one) for one in manifest.skips],
            "changed": manifest.changed,
            "tables": {name: pieces._asdict() for name, pieces in manifest.tables.items()},
        },
        option=orjson.OPT_SORT_KEYS,
        default=tuple,
    )
    return sha256(body).hexdigest().encode() + b"\n" + body + b"\n"


def decode_manifest(data: bytes, key: FoldKey) -> SnapshotManifest:
    """The manifest that was stored for this fold.

    Raises:
        ManifestError: it is damaged, of another fold, or of another build.
    """
    body = _body(data)
    try:
        return _manifest_of(body, key)
    except (KeyError, TypeError, ValueError) as error:
        raise ManifestError(f"This build does not read it ({error!r}).") from error


def digests_in(data: bytes) -> set[str]:
    """The digests of the pieces that a manifest of any fold and build names.

    Raises:
        ManifestError: it is damaged.
    """
    return set(_DIGEST.findall(orjson.dumps(_body(data)["tables"]).decode()))


def _body(data: bytes) -> Mapping[str, Any]:
    digest, _, rest = data.partition(b"\n")
    body = rest.removesuffix(b"\n")
    if sha256(body).hexdigest().encode() != digest:
        raise ManifestError("It is not what was written.")
    found: Mapping[str, Any] = orjson.loads(body)
    return found


def _manifest_of(body: Mapping[str, Any], key: FoldKey) -> SnapshotManifest:
    found = FoldKey(*(body[name] for name in FoldKey._fields))
    if found != key:
        raise ManifestError(f"It is of {found.folder}.")
    tables = {
        name: TablePieces(
            tuple(None if one is None else PieceRef(*one) for one in pieces["live"]),
            tuple(PieceRef(*one) for one in pieces["retired"]),
        )
        for name, pieces in body["tables"].items()
    }
    return SnapshotManifest(
        key,
        Anchor(*body["anchor"]),
        datetime.strptime(body["recorded_at"], _TIME).replace(tzinfo=UTC),
        body["build"],
        body["events"],
        body["next_number"],
        tuple(body["skips"]),
        ChangedDecisions(*body["changed"]),
        tables,
    )


def skips_up_to(skipped: Iterable[Position], generations: Generations, sequence: Offset) -> tuple[Offset, ...]:
    """The skipped positions that a fold up to a position has met, in their order."""
    numbers = {number_of(one.sequence) for one in skipped if generations.has(one)}
    return tuple(sorted(one for one in numbers if one <= number_of(sequence)))
