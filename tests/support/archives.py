"""Archives of ledgers in memory, whose clock is set, and stores that fail."""

from collections.abc import Callable, Iterable
from datetime import datetime
from pathlib import Path

from gpuledger.domain.seals.chain import beginning
from gpuledger.events.envelope import Decoded, decode
from gpuledger.events.ledger import LedgerSealed
from gpuledger.events.position import next_after, number_of
from gpuledger.ledger.api import Message, Outgoing
from gpuledger.ledger.memory import MemoryLedger
from gpuledger.runtime.objects import FolderObjects, ObjectsUnavailableError
from gpuledger.tools.archive.manifest import Manifest
from gpuledger.tools.archive.read import archived_messages
from gpuledger.tools.archive.store import Archive
from support.events import event, outgoing


class SetClock:
    """The server's clock of a ledger in memory."""

    def __init__(self, now: datetime) -> None:
        self.now = now

    def __call__(self) -> int:
        return int(self.now.timestamp()) * 1_000_000_000 + 123_456_789


class FailingObjects(FolderObjects):
    """A folder that cannot be written any more after so many objects."""

    def __init__(self, folder: Path, puts_max: int) -> None:
        super().__init__(folder)
        self.puts_left = puts_max

    async def put(self, key: str, data: bytes) -> None:
        if self.puts_left == 0:
            raise ObjectsUnavailableError("The disk is full.")
        self.puts_left -= 1
        await super().put(key, data)


def archive_in(folder: Path) -> Archive:
    """The archive in a folder."""
    return Archive(FolderObjects(folder))


async def record(ledger: MemoryLedger, events: Iterable[Decoded]) -> None:
    """Record events."""
    await ledger.publish_many([outgoing(one) for one in events])


async def seal(ledger: MemoryLedger) -> None:
    """Record a seal of everything that no seal covers yet."""
    chain, seals = beginning(""), 0
    async for batch in ledger.history():
        for one in batch:
            chain = chain.after(one.sequence, one.subject, one.data)
            if one.subject.startswith("ledger.svc.seals."):
                data = decode(one.data).data
                assert isinstance(data, LedgerSealed)
                chain, seals = chain._replace(sealed_to=data.last, sealed_digest=data.digest), seals + 1
    first, last = number_of(next_after(chain.sealed_to)), number_of(chain.position)
    data = LedgerSealed(first=first, last=last, digest=chain.digest, previous=chain.sealed_digest)
    await record(ledger, [event(data, "1", number=seals + 1, source="/services/seals")])


async def messages_of(archive: Archive, manifest: Manifest) -> list[Message]:
    """Everything that an archive holds of a generation."""
    return [one async for batch in archived_messages(archive, manifest) for one in batch]


def files_in(folder: Path) -> list[Path]:
    """The Parquet files of an archive."""
    return sorted(folder.rglob("*.parquet"))


def replaced(folder: Path, pattern: str, change: Callable[[bytes], bytes]) -> None:
    """Change the only file that matches."""
    (path,) = folder.rglob(pattern)
    path.write_bytes(change(path.read_bytes()))


def undecodable(number: int) -> Outgoing:
    """What is no event of ours."""
    return Outgoing("ledger.node.n1.device.d.failed", f"x{number}", b"\xff\x00{")
