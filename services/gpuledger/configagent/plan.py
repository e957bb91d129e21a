"""Plans how a host comes to have a configuration: files first, then systemd reads them, then units. Pure.

A file that an earlier revision made and this one does not have is removed, so that a rollback leads back to what was
there; one that was there before the agent, or that somebody changed meanwhile, stays. What is as it should be already
has a step that does nothing, for the report.
"""

from collections.abc import Iterator, Mapping
from typing import Final, NamedTuple

from gpuledger.configagent.host import UnitStatus
from gpuledger.configagent.host_file import ABSENT, FileStatus, NewFile, file_status
from gpuledger.configagent.owners import Accounts, OwnerIds
from gpuledger.configagent.state import AgentMemory, ManagedFile
from gpuledger.configagent.steps import SYSTEMD, Plan, Step, Work
from gpuledger.configagent.unit_plan import UnitRules, unit_steps
from gpuledger.domain.machineconfig.desired import DesiredConfig, DesiredFile

UNIT_FOLDERS: Final = (
    "/etc/systemd/system/", "/run/systemd/system/", "/usr/local/lib/systemd/system/", "/usr/lib/systemd/system/",
    "/lib/systemd/system/",
)  # fmt: skip
"""Where systemd reads unit files from."""

PRESENT: Final = "present"


class Observed(NamedTuple):
    """The host before the work. `obstacles` say by path why it cannot be reached; without `accounts` root owns all."""

    accounts: Accounts | None
    files: Mapping[str, FileStatus]
    obstacles: Mapping[str, str]
    units: Mapping[str, UnitStatus]


def make_plan(config: DesiredConfig, observed: Observed, memory: AgentMemory) -> Plan:
    """The steps from what is on the host, and from what the agent put there, to the configuration."""
    planned = [_file(one, observed) for one in config.files]
    problems = tuple(one for one in planned if isinstance(one, str))
    files = [one for one in planned if isinstance(one, Step)]
    files += _stale(config, observed, memory)
    changed = [step.subject for step in files if step.changes]
    rules = UnitRules(
        acted=() if changed or not _is_same(config, memory) else memory.acted,
        masked=memory.masked,
        rewritten=frozenset(_unit_of(path) for path in changed if is_unit_file(path)),
    )
    units = unit_steps(config.units, observed.units, rules)
    reload = [_RELOAD] if memory.reload_due or any(map(is_unit_file, changed)) else []
    return Plan((*files, *reload, *units), problems)


def managed_files(config: DesiredConfig, observed: Observed, memory: AgentMemory) -> dict[str, ManagedFile]:
    """The configuration's files as the agent keeps them in mind; the plan has no problems."""
    managed = {}
    for one in config.files:
        if one.state == PRESENT:
            status, before = file_status(new_file(one, observed.accounts)), memory.files.get(one.path)
            created = observed.files.get(one.path, ABSENT) == ABSENT if before is None else before.created
            managed[one.path] = ManagedFile(status.hash, status.mode, status.uid, status.gid, created)
    return managed


def is_unit_file(path: str) -> bool:
    """Whether systemd reads it as a unit file, or as a part of one."""
    return path.startswith(UNIT_FOLDERS)


def new_file(one: DesiredFile, accounts: Accounts | None) -> NewFile:
    """The file to write.

    Raises:
        ValueError: the host has no such owner.
    """
    ids = OwnerIds(0, 0) if accounts is None else accounts.ids(one.owner)
    return NewFile(one.path, one.content.encode(), one.mode, *ids)


_RELOAD: Final = Step(SYSTEMD, "daemon-reload", Work.SYSTEMCTL)


def _is_same(config: DesiredConfig, memory: AgentMemory) -> bool:
    """Whether the agent has worked on this configuration last."""
    return memory.begun == config.name


def _file(one: DesiredFile, observed: Observed) -> Step | str:
    """The step for a file, or why there is none."""
    if (obstacle := observed.obstacles.get(one.path)) is not None:
        return obstacle
    found = observed.files.get(one.path, ABSENT)
    if found.kind in ("folder", "other"):
        return f"{one.path} is a {found.kind} on the host, not a file; choose another path, or remove it by hand."
    if one.state != PRESENT:
        work = Work.NOTHING if found.kind == "absent" else Work.REMOVE
        return Step(one.path, "remove", work, persists=True)
    try:
        new = new_file(one, observed.accounts)
    except ValueError as error:
        return f"{one.path}: {error}."
    if found == file_status(new):
        return Step(one.path, "write")
    note = f"replaces a link to {found.target}" if found.kind == "link" else ""
    return Step(one.path, "write", Work.WRITE, new, note, persists=True)


def _stale(config: DesiredConfig, observed: Observed, memory: AgentMemory) -> Iterator[Step]:
    """The steps for files that an earlier revision has and this one has not."""
    paths = {one.path for one in config.files}
    for path, managed in sorted(memory.files.items()):
        if path in paths:
            continue
        found = observed.files.get(path, ABSENT)
        if not managed.created:
            yield Step(path, "remove", note="stays: it was there before the configuration")
        elif found.kind == "absent":
            yield Step(path, "remove")
        elif found != FileStatus("file", managed.hash, managed.mode, managed.uid, managed.gid):
            yield Step(path, "remove", note="stays: somebody has changed it")
        else:
            yield Step(path, "remove", Work.REMOVE, note="no longer in the configuration", persists=True)


def _unit_of(path: str) -> str:
    """The unit that a unit file is, or is a part of: `a.service`, or `a.service.d/b.conf`."""
    folder, _, name = path.rpartition("/")
    parent = folder.rpartition("/")[2]
    return parent.removesuffix(".d") if parent.endswith(".d") else name
