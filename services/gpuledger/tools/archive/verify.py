"""Proves an archive: by itself, by the seals that it holds, and by the log where that is here.

Every file is read. Its digest, the chain of digests over its exact bytes, the columns beside them, its place and month
have to be what the manifest says. Months that retention deleted count by the link that their tombstone keeps; a seal
behind them proves it.
"""

from collections.abc import Mapping
from contextlib import AsyncExitStack
from typing import Final, NamedTuple

from gpuledger.domain.seals.proof import RecordedSeal, compare, unproven_before
from gpuledger.events.digests import chained
from gpuledger.events.position import Offset, Position, back, is_at_or_after, is_same, next_after
from gpuledger.ledger.api import Ledger, Message
from gpuledger.ledger.errors import GenerationError, LogChangedError, NoLedgerError
from gpuledger.ledger.identity import anchor_digest
from gpuledger.ledger.jetstream import connect_ledger
from gpuledger.tools.archive.events_file import EventRow, row_of
from gpuledger.tools.archive.manifest import EventsEntry, Manifest
from gpuledger.tools.archive.read import archived_rows, kept_messages
from gpuledger.tools.archive.store import NAME, Archive
from gpuledger.tools.archive.write import month_of
from gpuledger.tools.errors import ToolError
from gpuledger.tools.log_proof import SEAL_SUBJECTS, seals_among
from gpuledger.tools.queries.backend import Backend
from gpuledger.tools.reporting import Advance, Reporter

_SEALS_PREFIX: Final = SEAL_SUBJECTS.removesuffix(">")


class ArchiveProof(NamedTuple):
    """What is proven of a generation's archive.

    `events` are there, and `deleted` were deleted by retention. `seals`, of the archive and of the log, cover it up to
    `sealed_to`. `is_compared` says whether the log was there to compare with. `first_break` is what is not as it was.
    """

    until: Position
    events: int
    deleted: int
    seals: int
    sealed_to: Position
    is_compared: bool
    first_break: str | None


async def verify_archive(archive: Archive, backend: Backend | None, reporter: Reporter) -> list[ArchiveProof]:
    """Verify every generation of an archive, and compare it with the log where a backend is given.

    Raises:
        ToolError: there is no archive, or a manifest is damaged.
    """
    manifests = await archive.manifests()
    proofs = []
    for manifest in manifests.values():
        async with AsyncExitStack() as stack:
            ledger = None if backend is None else await _ledger_of(stack, backend, manifest)
            proof = await verify_generation(archive, manifest, ledger, reporter)
        proofs.append(proof._replace(first_break=proof.first_break or _predecessor_break(manifests, manifest)))
    return proofs


async def verify_generation(
    archive: Archive, manifest: Manifest, ledger: Ledger | None, reporter: Reporter
) -> ArchiveProof:
    """Verify the archive of one generation, and compare it with the log where that is given."""
    proof = _Proof(archive, manifest)
    description = f"Verifying generation {manifest.generation} of {archive.url}"
    with reporter.progress(description, total=manifest.events, unit="events") as advance:
        await proof.read(ledger, advance)
    return proof.result()


async def _ledger_of(stack: AsyncExitStack, backend: Backend, manifest: Manifest) -> Ledger | None:
    """The generation of the log; None where it is not here."""
    if manifest.generation == backend.ledger.generation:
        return backend.ledger
    opening = connect_ledger(
        backend.nats_url, name=NAME, generation=manifest.generation, identity=backend.nats_identity
    )
    try:
        return await stack.enter_async_context(opening)
    except GenerationError:
        return None


def _predecessor_break(manifests: Mapping[int, Manifest], manifest: Manifest) -> str | None:
    """Whether the generation before ended as this one says, as far as it is archived."""
    before = manifests.get(manifest.generation - 1)
    named = manifest.predecessor
    if before is None or named is None or not before.files or not is_same(before.end, named.head):
        return None
    if before.files[-1].last_digest != named.digest or (manifest.continued and before.link != manifest.continued.link):
        return f"generation {before.generation} does not end with the event that generation {manifest.generation} names"
    return None


class _Proof:
    """One generation's archive, as far as it was read. It keeps the links at the ends of seals, and no others."""

    def __init__(self, archive: Archive, manifest: Manifest) -> None:
        self._archive = archive
        self._manifest = manifest
        self._seals: list[RecordedSeal] = []
        self._links: dict[Offset, str] = {}
        self._is_compared = False
        self._first_break: str | None = None

    def note(self, problem: str | None) -> None:
        """Keep the first problem."""
        self._first_break = self._first_break or problem

    async def read(self, ledger: Ledger | None, advance: Advance) -> None:
        """Read the seals of archive and log, and then every file."""
        try:
            async for messages in kept_messages(self._archive, self._manifest, _SEALS_PREFIX):
                self._take_seals(messages)
            if ledger is not None:
                await self._compare(ledger)
            await self._read_files(advance)
        except ToolError as error:
            self.note(error.message)

    def result(self) -> ArchiveProof:
        """What is proven."""
        manifest = self._manifest
        compared = compare(self._provable_seals(), self._links)
        self.note(compared.first_break)
        return ArchiveProof(
            manifest.until,
            manifest.events,
            sum(one.events for one in manifest.files if one.deleted),
            compared.seals,
            Position(manifest.generation, compared.sealed_to),
            self._is_compared,
            self._first_break,
        )

    async def _compare(self, ledger: Ledger) -> None:
        """Compare with the log: its identity, its event at the archive's end, and its seals."""
        manifest = self._manifest
        try:
            if ledger.identity.ledger_id != manifest.ledger_id:
                raise ToolError(f"it is the archive of the ledger {manifest.ledger_id}, not of the one that is here")
            if manifest.files:
                found = await ledger.anchor_at(manifest.end)
                if found is None or found.digest != manifest.files[-1].last_digest:
                    raise ToolError(f"the log has another event at {manifest.until}")
            async for messages in ledger.history(manifest.identity.behind, subject_filter=SEAL_SUBJECTS):
                self._take_seals(messages)
        except (LogChangedError, NoLedgerError) as error:
            raise ToolError(str(error)) from error
        self._is_compared = True

    def _take_seals(self, messages: list[Message]) -> None:
        self._seals += seals_among(messages, self.note)

    async def _read_files(self, advance: Advance) -> None:
        link, ends = self._manifest.first_link, {seal.data.last for seal in self._seals}
        for entry in self._manifest.files:
            if entry.deleted is None:
                await self._read_file(entry, link, ends, advance)
            link = self._links[entry.last] = entry.link

    async def _read_file(self, entry: EventsEntry, link: str, ends: set[int], advance: Advance) -> None:
        at, last = back(entry.first, 1), None
        async for rows in archived_rows(self._archive, self._manifest, entry):
            for row in rows:
                last = Message(row.nats_subject, row.raw, row.position, row.recorded_ns)
                at = next_after(at)
                if not is_same(at, last.sequence):
                    raise ToolError(f"{entry.path} has the position {last.sequence} where {at} belongs")
                _check_row(entry, row, row_of(last, self._manifest.generation))
                link = chained(link, last.subject, last.data)
                if row.position in ends:
                    self._links[row.position] = link
            advance(len(rows))
        if last is None or not is_same(at, entry.last) or link != entry.link:
            raise ToolError(f"the messages {entry.first} to {entry.last} are not those of the chain of digests")
        if anchor_digest(last.subject, last.data) != entry.last_digest:
            raise ToolError(f"the message at {entry.last} is not the one that the manifest names")

    def _provable_seals(self) -> list[RecordedSeal]:
        """The seals that end within the archive, and not within what was deleted.

        One that follows such a seal, or one of the generation before, counts as one that follows a restored seal, which
        nothing here proves either.
        """
        end, links = self._manifest.end, self._links
        provable = [
            seal
            for seal in self._seals
            if is_at_or_after(end, seal.data.last) and (seal.is_restored or seal.data.last in links)
        ]
        return [*provable, *unproven_before(provable, links)]


def _check_row(entry: EventsEntry, row: EventRow, expected: EventRow) -> None:
    if row != expected:
        names = [name for name, found, made in zip(row._fields, row, expected, strict=True) if found != made]
        raise ToolError(f"{entry.path} has at {row.position} another {names[0]} than the message says")
    if month_of(row.recorded_ns) != entry.month:
        raise ToolError(f"{entry.path} has at {row.position} an event that was recorded in another month")
