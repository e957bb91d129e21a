"""What the agent has done to its host, as it stands on the disk; it counts for more than the annotations. Pure.

A machine may lose its power at any moment, its Node object may be made anew, and a disk may be copied to another
machine: what was applied is known where it was applied.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import Any, Final, NamedTuple

VERSION: Final = 1


class ManagedFile(NamedTuple):
    """A file that the agent put on the host. `created` says that there was none before."""

    hash: str
    mode: int
    uid: int
    gid: int
    created: bool


class AppliedConfig(NamedTuple):
    """A configuration that is on the host as a whole, and the reboot policy that it came with."""

    name: str
    config_hash: str
    reboot_required: bool
    reboot_strategy: str
    reboot_min_interval_s: int


class RebootRequest(NamedTuple):
    """A reboot that the agent asked for: when, and in which boot of the machine."""

    at: datetime
    boot: str


@dataclass(frozen=True, slots=True)
class AgentMemory:
    """What is on the host, and what is under way.

    `current` is the revision that was completed last, with its reboot where one was due; `applied` what is on the host,
    None while that is incomplete. `begun` is the name of the configuration whose steps have begun, `acted` the units
    that were restarted or reloaded for it. `reload_due` says that systemd has not read changed unit files yet.
    `reboot_due` is the boot in which something was applied that takes a reboot. `previous_required` says that the last
    complete configuration required a reboot already. `under_way` says that what was begun is not completed, which
    `current` does not where the node returns to it. `forgotten` is the boot in which the memory was found lost, though
    the agent had a reboot due: another one would be forgotten as well.
    """

    current: str | None = None
    applied: AppliedConfig | None = None
    begun: str | None = None
    previous_required: bool = False
    acted: tuple[str, ...] = ()
    files: Mapping[str, ManagedFile] = field(default_factory=dict)
    masked: tuple[str, ...] = ()
    reload_due: bool = False
    reboot_due: str | None = None
    requested: RebootRequest | None = None
    under_way: bool = False
    forgotten: str | None = None

    def booted(self, boot: str) -> "AgentMemory":
        """The memory in this boot: a reboot, whoever made it, fulfils what was due in an earlier one."""
        return self if self.reboot_due in (None, boot) else replace(self, reboot_due=None)

    def by_clock(self, now: datetime) -> "AgentMemory":
        """The memory at this time: no reboot was asked for later than now, though a clock that was put back says so."""
        if self.requested is None or self.requested.at <= now:
            return self
        return replace(self, requested=self.requested._replace(at=now))

    @property
    def last_reboot_at(self) -> datetime | None:
        """When the agent asked for a reboot last."""
        return None if self.requested is None else self.requested.at


def memory_document(memory: AgentMemory) -> dict[str, Any]:
    """The memory as JSON."""
    requested = memory.requested
    return {
        "version": VERSION,
        "current": memory.current,
        "applied": None if memory.applied is None else memory.applied._asdict(),
        "begun": memory.begun,
        "previous_required": memory.previous_required,
        "acted": list(memory.acted),
        "files": {path: one._asdict() for path, one in sorted(memory.files.items())},
        "masked": list(memory.masked),
        "reload_due": memory.reload_due,
        "reboot_due": memory.reboot_due,
        "requested": None if requested is None else {"at": requested.at.isoformat(), "boot": requested.boot},
        "under_way": memory.under_way,
        "forgotten": memory.forgotten,
    }


def read_memory(document: Any) -> AgentMemory:  # noqa: ANN401
    """The memory of such JSON.

    Raises:
        ValueError: it is none, or one of a later version.
    """
    try:
        if document["version"] != VERSION:
            raise ValueError(f"it has the version {document['version']}, this agent knows {VERSION}")
        applied, requested = document["applied"], document["requested"]
        return AgentMemory(
            current=document["current"],
            applied=None if applied is None else AppliedConfig(**applied),
            begun=document["begun"],
            previous_required=document["previous_required"],
            acted=tuple(document["acted"]),
            files={path: ManagedFile(**one) for path, one in document["files"].items()},
            masked=tuple(document["masked"]),
            reload_due=document["reload_due"],
            reboot_due=document["reboot_due"],
            requested=None
            if requested is None
            else RebootRequest(datetime.fromisoformat(requested["at"]), requested["boot"]),
            under_way=document["under_way"],
            forgotten=document["forgotten"],
        )
    except (KeyError, TypeError, AttributeError) as error:
        raise ValueError(f"it is not what the agent writes: {error!r}") from error
