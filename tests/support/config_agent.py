"""A host in a folder, a systemd in memory, and an API server in memory, for the agent of machine configuration."""

import asyncio
from collections.abc import AsyncGenerator, Callable, Collection, Iterable, Mapping
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, Final

from gpuledger.api.machine_config import ANNOTATION_DESIRED, rendered_name
from gpuledger.configagent.agent import AgentTimes
from gpuledger.configagent.errors import ApiError, RenderedMissingError, UnitError
from gpuledger.configagent.host import Host, UnitStatus
from gpuledger.domain.machineconfig.config_hash import config_hash
from gpuledger.domain.machineconfig.desired import DesiredConfig, DesiredFile, DesiredUnit
from gpuledger.domain.machineconfig.rendered_object import document_of
from gpuledger.events.machine_config import NodeConfigReported
from gpuledger.runtime.backoff import Backoff

AT: Final = datetime(2026, 1, 9, 10, tzinfo=UTC)
POOL: Final = "worker"
BRIEF: Final = Backoff(first_s=0.01, max_s=0.02)
TIMES: Final = AgentTimes(
    check_s=0.05, report_within_s=0.2, relist_s=0.01, patch_pause_s=0.0, work=BRIEF, watch=BRIEF, patch=BRIEF
)


def file(
    path: str, content: str = "", *, mode: int = 0o644, owner: str = "root:root", present: bool = True
) -> DesiredFile:
    return DesiredFile(path, content, mode, owner, "present" if present else "absent")


def unit(name: str, state: str | None = None, *, enabled: bool | None = None, mask: bool = False) -> DesiredUnit:
    return DesiredUnit(name, enabled, state, mask)


def config(
    files: Iterable[DesiredFile] = (),
    units: Iterable[DesiredUnit] = (),
    *,
    reboot: bool = False,
    strategy: str = "Never",
    min_interval_s: int = 1800,
) -> DesiredConfig:
    """A configuration under the name that the renderer gives it."""
    ours = tuple(sorted(files)), tuple(sorted(units, key=lambda one: one.name))
    digest = config_hash(*ours, reboot_required=reboot)
    return DesiredConfig(rendered_name(POOL, digest), POOL, digest, *ours, reboot, strategy, min_interval_s)


class FakeSystemd:
    """Units in memory; `calls` are the verbs that were run. A unit in `failing` takes no verb."""

    def __init__(self, **units: UnitStatus) -> None:
        self.units = {f"{name}.service": status for name, status in units.items()}
        self.calls: list[str] = []
        self.failing: set[str] = set()

    def observe(self, names: Collection[str]) -> Mapping[str, UnitStatus]:
        return {name: self.units.get(name, UnitStatus("not-found")) for name in names}

    def run(self, verb: str, unit: str | None = None) -> None:
        self.calls.append(f"{verb} {unit}" if unit else verb)
        if unit is None:
            return
        if unit in self.failing:
            raise UnitError(f"systemctl {verb} {unit} failed with exit code 1: refused")
        self.units[unit] = self._after(verb, self.units.get(unit, UnitStatus()))

    def _after(self, verb: str, found: UnitStatus) -> UnitStatus:
        match verb.split(maxsplit=1)[0]:
            case "enable":
                return found._replace(unit_file="enabled")
            case "disable" | "unmask":
                return found._replace(unit_file="disabled")
            case "mask":
                return found._replace(unit_file="masked")
            case "stop":
                return found._replace(active="inactive")
        return found._replace(active="inactive" if found.kind == "oneshot" else "active")


class FakeMachine:
    """A machine in a folder, which counts its boots."""

    def __init__(self, root: Path, systemd: FakeSystemd | None = None) -> None:
        self.root = root / "host"
        (self.root / "etc").mkdir(parents=True, exist_ok=True)
        (self.root / "etc/passwd").write_text("root:x:0:0::/root:/bin/sh\ngpu:x:1234:1235::/:/bin/false\n")
        (self.root / "etc/group").write_text("root:x:0:\ngpus:x:4321:\n")
        self.state = root / "state"
        self.systemd = systemd or FakeSystemd()
        self.boots = 0
        self.reboots_asked = 0
        self.on_reboot: Callable[[], None] = lambda: None

    @property
    def host(self) -> Host:
        return Host(self.root, self.state, self.systemd, self._reboot, lambda: f"boot-{self.boots}")

    def path(self, path: str) -> Path:
        return self.root / path.removeprefix("/")

    def _reboot(self) -> None:
        self.reboots_asked += 1
        self.on_reboot()


class FakeApi:
    """One Node and the configurations of a cluster, in memory. While `is_away` nothing is answered."""

    def __init__(self, *configs: DesiredConfig) -> None:
        self.annotations: dict[str, str] = {}
        self.documents = {one.name: document_of(one) for one in configs}
        self.patches: list[Mapping[str, str | None]] = []
        self.is_away = False
        self.takes_patches = True
        self._changed = asyncio.Condition()

    async def desire(self, name: str | None) -> None:
        await self.set({ANNOTATION_DESIRED: name})

    async def node(self) -> AsyncGenerator[Mapping[str, str]]:
        while True:
            self._check()
            before = dict(self.annotations)
            yield before
            async with self._changed:
                while not self.is_away and self.annotations == before:
                    await self._changed.wait()

    async def rendered(self, name: str) -> Any:
        self._check()
        if name not in self.documents:
            raise RenderedMissingError(f"There is no RenderedMachineConfig {name}.", 404)
        return self.documents[name]

    async def patch(self, annotations: Mapping[str, str | None]) -> None:
        self._check()
        if not self.takes_patches:
            raise ApiError("The API server refuses.", 403)
        self.patches.append(annotations)
        await self.set(annotations)

    async def leave(self) -> None:
        self.is_away = True
        async with self._changed:
            self._changed.notify_all()

    def _check(self) -> None:
        if self.is_away:
            raise ApiError("The API server does not answer.")

    async def set(self, annotations: Mapping[str, str | None]) -> None:
        async with self._changed:
            for name, value in annotations.items():
                if value is None:
                    self.annotations.pop(name, None)
                else:
                    self.annotations[name] = value
            self._changed.notify_all()


class Reports:
    """The facts that an agent leaves."""

    def __init__(self) -> None:
        self.facts: list[NodeConfigReported] = []

    async def __call__(self, fact: NodeConfigReported) -> None:
        self.facts.append(fact)

    @property
    def states(self) -> list[str]:
        return [fact.state for fact in self.facts]


class SteppingClock:
    """A clock that a test moves."""

    def __init__(self) -> None:
        self.now = AT

    def __call__(self) -> datetime:
        return self.now

    def pass_s(self, seconds: float) -> None:
        self.now += timedelta(seconds=seconds)
