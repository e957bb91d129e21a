"""The coordinator of gangs for tests: quick to look again, and pods with checks as watchers record them."""

from collections.abc import AsyncIterator
from contextlib import aclosing, asynccontextmanager
from dataclasses import replace
from datetime import datetime
from typing import Any

from gpuledger.api.kinds import CONFIG_MAPS, EVENTS
from gpuledger.api.preflight import gang_config_map
from gpuledger.db.locks import LockCheck
from gpuledger.edge.kube.client import KubeClient, Object, Selection
from gpuledger.edge.kube.errors import NotFoundError
from gpuledger.edge.kube.ownership import claim, owner
from gpuledger.edge.preflight.coordinator.decide import Pacing
from gpuledger.edge.preflight.coordinator.service import PreflightCoordinator
from gpuledger.edge.preflight.coordinator.settings import CoordinatorSettings
from gpuledger.events.envelope import Event, decode
from gpuledger.events.payload import Payload
from gpuledger.events.preflight import GangConfigured, PodPreflightGone, PodPreflightObserved
from gpuledger.ledger.jetstream import JetStreamLedger
from gpuledger.projection.followed_log import FollowedLog
from gpuledger.runtime.backoff import Backoff
from gpuledger.runtime.clock import system_clock
from support.events import outgoing
from support.kept_running import kept_running
from support.killing import SteppingClient, SteppingLedger, Steps, was_killed
from support.ledgers import everything
from support.waiting import eventually

BACKOFF = Backoff(first_s=0.02, max_s=0.2, healthy_after_s=5.0)
QUICK_COORDINATOR = CoordinatorSettings(
    requests_per_s=1000.0, requests_burst=1000,
    backoff=BACKOFF, refused_backoff=BACKOFF, restart_backoff=BACKOFF, rechecks=BACKOFF, size_looks=BACKOFF,
    size_rechecks=BACKOFF, lock_check=LockCheck(interval_s=0.1), ownership_check_s=60.0, refusals_max=3,
    pacing=Pacing(first_s=0.2, settle_s=0.3),
)  # fmt: skip
ONE_LOOK = replace(QUICK_COORDINATOR, rechecks=Backoff(first_s=3600.0, max_s=3600.0))
"""For who counts the steps of a coordinator: further looks at the ConfigMaps of all gangs are steps without end."""

WATCHERS = "/watchers/preflight-pods"
WAITING = {"name": "nccl-allreduce", "state": "waiting"}
PASSED = {"name": "nccl-allreduce", "state": "ended", "exit_code": 0}


def observed(uid: str = "u", ip: str | None = None, **fields: Any) -> PodPreflightObserved:
    """A pod of a gang of two that its pods tell, on a node where it has an address."""
    given = {
        "uid": uid, "ip": ip, "node": f"node-{ip}" if ip else None, "gang": "g", "gang_source": "label/g",
        "gang_size": 2, "checks": [WAITING],
    }  # fmt: skip
    return PodPreflightObserved.model_validate(given | fields)


class GangPods:
    """Pods as the watchers record them, and what the coordinator makes of them."""

    def __init__(self, ledger: JetStreamLedger, client: KubeClient) -> None:
        self.ledger = ledger
        self.client = client
        self._number = 0

    async def claim(self) -> None:
        """The cluster belongs to the ledger."""
        await claim(self.client, owner(self.ledger.identity.ledger_id, system_clock()), "test")

    async def record(self, *facts: tuple[str, Payload], at: datetime | None = None) -> None:
        """Record facts about pods, at once."""
        events = []
        for pod, data in facts:
            self._number += 1
            time = at or system_clock()
            events.append(Event(f"w{self._number}", WATCHERS, data.TYPE, pod, time, data, "e1", self._number))
        await self.ledger.publish_many([outgoing(one) for one in events])

    async def pod(self, pod: str, uid: str = "u", ip: str | None = None, **fields: Any) -> None:
        """The watchers see a pod."""
        await self.record((pod, observed(uid, ip, **fields)))

    async def gone(self, pod: str, uid: str = "u") -> None:
        """A pod is gone."""
        await self.record((pod, PodPreflightGone(uid=uid)))

    async def config_map(self, gang: str = "g", namespace: str = "default") -> Object | None:
        """The ConfigMap of a gang."""
        try:
            return await self.client.get(CONFIG_MAPS, gang_config_map(gang), namespace)
        except NotFoundError:
            return None

    async def comes(self, *peers: str, gang: str = "g", namespace: str = "default", expected: str | None = "2") -> None:
        """Return when the ConfigMap has these peers, and so many pods are expected."""

        async def has_come() -> bool:
            found = await self.config_map(gang, namespace)
            data = {} if found is None else found["data"]
            return found is not None and (data["peers"].split(), data.get("expected_count")) == ([*peers], expected)

        await eventually(has_come)

    async def disappears(self, gang: str = "g") -> None:
        """Return when there is no ConfigMap."""

        async def is_gone() -> bool:
            return await self.config_map(gang) is None

        await eventually(is_gone)

    async def outcomes(self, gang: str = "default/g") -> list[Any]:
        """What was recorded of a gang."""
        found = [decode(one.data) for one in await everything(self.ledger) if ".svc.preflight." in one.subject]
        return [one.data for one in found if one.subject == gang]

    async def has_outcome(self, kind: type[Payload], times: int = 1, gang: str = "default/g") -> list[Any]:
        """Return outcomes of a kind once there are so many, all of them."""

        async def is_recorded() -> bool:
            return len(await self._of(kind, gang)) >= times

        await eventually(is_recorded)
        return await self._of(kind, gang)

    async def _of(self, kind: type[Payload], gang: str) -> list[Any]:
        return [one for one in await self.outcomes(gang) if isinstance(one, kind)]

    async def events(self, namespace: str = "default") -> list[Object]:
        """The Kubernetes Events."""
        return (await self.client.list(EVENTS, Selection(namespace))).items


@asynccontextmanager
async def coordinator(
    ledger: JetStreamLedger, database_url: str, client: KubeClient, settings: CoordinatorSettings = QUICK_COORDINATOR
) -> AsyncIterator[PreflightCoordinator]:
    """A coordinator that runs until the block ends."""
    async with (
        aclosing(FollowedLog((), ledger, database_url)) as followed,
        kept_running(PreflightCoordinator(ledger, database_url, client, followed, settings=settings)) as found,
    ):
        yield found


async def coordinate_until_killed(
    pods: GangPods, database_url: str, client: SteppingClient, steps: Steps, gang: str
) -> bool:
    """Run a coordinator until it is killed, or has recorded how a gang is configured; says whether it was killed."""
    stepping = SteppingLedger(pods.ledger, steps)
    async with aclosing(FollowedLog((), stepping, database_url)) as followed:
        found = PreflightCoordinator(stepping, database_url, client, followed, settings=ONE_LOOK)
        settled = _settled(pods, found, gang)
        return await was_killed(found, settled, client, steps)


async def _settled(pods: GangPods, found: PreflightCoordinator, gang: str) -> None:
    async def is_configured() -> bool:
        outcomes = [one for one in await pods.outcomes(f"default/{gang}") if isinstance(one, GangConfigured)]
        return found.health().state == "writing" and bool(outcomes)

    await eventually(is_configured)
