"""Running importers against a log in memory, and looking at what came out."""

from datetime import UTC, datetime
from pathlib import Path
from typing import NamedTuple

from gpuledger.events.envelope import Decoded, decode
from gpuledger.ledger.memory import MemoryLedger
from gpuledger.tools.importers.draft import Reject
from gpuledger.tools.importers.run import ImportResult, import_jsonl, import_openb, import_titan
from support.paths import ROOT

NOW = datetime(2026, 3, 1, 12, tzinfo=UTC)
DATA = ROOT.parent / "shared" / "data"
TITAN_HEADER = "SN,location,insert,remove,duration,out,event"
NODE_HEADER = "sn,cpu_milli,memory_mib,gpu,model"
POD_HEADER = (
    "name,cpu_milli,memory_mib,num_gpu,gpu_milli,gpu_spec,qos,pod_phase,creation_time,deletion_time,scheduled_time"
)


class Imported(NamedTuple):
    """An import's result, what the log holds afterwards, and every reject."""

    result: ImportResult
    events: list[Decoded]
    rejects: list[Reject]

    def recorded(self) -> list[tuple[str, str, str]]:
        """Time, aggregate and event, and subject of every event, briefly."""
        return [
            (f"{event.time:%m-%d %H:%M}", event.type.removeprefix("io.gpuledger.").removesuffix(".v1"), event.subject)
            for event in self.events
        ]

    def reasons(self) -> list[tuple[int, str]]:
        """Line and reason of every reject."""
        return [(reject.line, reject.reason) for reject in self.rejects]


async def recorded(ledger: MemoryLedger) -> list[Decoded]:
    """Every event of the log, in its order."""
    return [decode(message.data) async for batch in ledger.history() for message in batch]


async def titan(path: Path, ledger: MemoryLedger | None = None, now: datetime = NOW) -> Imported:
    """Import a file in Titan's format."""
    ledger, rejects = ledger or MemoryLedger(), list[Reject]()
    result = await import_titan(ledger, path, now=now, rejects=rejects.append)
    return Imported(result, await recorded(ledger), rejects)


async def openb(nodes: Path, pods: Path, ledger: MemoryLedger | None = None) -> Imported:
    """Import openb's two lists."""
    ledger, rejects = ledger or MemoryLedger(), list[Reject]()
    result = await import_openb(ledger, nodes, pods, now=NOW, rejects=rejects.append)
    return Imported(result, await recorded(ledger), rejects)


async def jsonl(path: Path, ledger: MemoryLedger | None = None) -> Imported:
    """Import one JSON event a line."""
    ledger, rejects = ledger or MemoryLedger(), list[Reject]()
    result = await import_jsonl(ledger, path, now=NOW, rejects=rejects.append)
    return Imported(result, await recorded(ledger), rejects)


def write(path: Path, *lines: str, end: str = "\n") -> Path:
    """A file of these lines."""
    path.write_bytes("".join(line + end for line in lines).encode())
    return path
