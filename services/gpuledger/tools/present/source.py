"""The present, from Kubernetes alone: what a command reads where there is no ledger.

It lists with the rights of whoever runs the command. Where a list is refused that an answer can do without, the answer
goes without it and a note says what that means. Nothing here writes, and nothing here knows a past.
"""

from collections.abc import Callable, Collection, Mapping, Sequence
from datetime import datetime
from typing import Final, TypeVar

from gpuledger.api.kinds import CONFIG_MAPS, GPU_DEVICES, NODES, PODS, RESOURCE_CLAIMS, Resource
from gpuledger.api.preflight import gang_config_map
from gpuledger.domain.dra.state import Availability
from gpuledger.domain.fact import Fact
from gpuledger.domain.pools.rows import PoolPod
from gpuledger.domain.preflight.pod_checks import PodChecks
from gpuledger.edge.kube.client import ALL, KubeClient, Object, Selection
from gpuledger.edge.kube.errors import ForbiddenError, NotFoundError
from gpuledger.edge.watchers.api_discovery import first_served
from gpuledger.tools.cluster import KubeAccess, object_or_none, open_kube
from gpuledger.tools.present.objects import DatedPart, facts_of, problem_notes
from gpuledger.tools.present.pools import POOL_KINDS, PoolObjects, PresentPools, pools_of
from gpuledger.tools.present.preflight import CHECKED, checks_in, gang_of, has_checks
from gpuledger.tools.present.refusal import refuse_past
from gpuledger.tools.present.slices import KINDS, PresentKind, availability_of
from gpuledger.tools.queries.moments import NOW, PointInTime

T = TypeVar("T")

UNREAD: Final[Mapping[str, str]] = {
    RESOURCE_CLAIMS.plural: "devices that claims of other namespaces hold count as available",
    PODS.plural: "units that pods of other namespaces use count as free",
    NODES.plural: "nodes are judged by their names alone",
}
"""What it means for an answer that a list is refused."""


class KubernetesSource:
    """The present of one cluster. Where lists of all namespaces are refused, `namespace` is listed alone."""

    is_present_only = True

    def __init__(self, access: KubeAccess, namespace: str | None = None) -> None:
        self._access = access
        self._namespace = namespace
        self._notes: dict[str, None] = {}

    @property
    def notes(self) -> Sequence[str]:
        """What could not be read, and what follows from that."""
        return tuple(self._notes)

    async def availability(self, moment: PointInTime = NOW, *, without: Collection[str] = ()) -> Availability:
        """Slices, claims and who holds what.

        Raises:
            RequestError: a moment of the past is meant.
            KubeError: what no answer can do without cannot be read.
        """
        refuse_past(moment.at or moment.recorded)
        facts: list[Fact] = []
        async with open_kube(self._access, KubeClient) as client:
            for one in KINDS:
                if one.is_needed(without):
                    facts += await self._facts(client, one)
        return availability_of(facts)

    async def pools(self, at: datetime | None = None) -> PresentPools:
        """Pools, their devices, and the pods that request units.

        Raises:
            RequestError: a time in the past is meant.
            KubeError: what no answer can do without cannot be read.
        """
        refuse_past(at)
        async with open_kube(self._access, KubeClient) as client:
            objects = PoolObjects(
                {kind.name: await _if_served(client, kind.resource) for kind in POOL_KINDS},
                await _if_served(client, GPU_DEVICES),
                await _if_served(client, NODES),
                await self._all_that_may_be_read(client, PODS, lambda obj: obj),
            )
        return pools_of(objects)

    async def pods(self, name: str, at: datetime) -> Mapping[str, PoolPod]:  # noqa: ARG002 - as the protocol has it
        """Kubernetes has no past pods.

        Raises:
            RequestError: in any case.
        """
        refuse_past(at)
        return {}

    async def preflight(self, name: str, at: datetime | None = None) -> PodChecks | None:
        """The checks of a pod, and its gang by the pods of its namespace and its ConfigMap.

        Raises:
            RequestError: a time in the past is meant.
            KubeError: the pod cannot be read.
        """
        refuse_past(at)
        namespace, _, pod = name.partition("/")
        async with open_kube(self._access, KubeClient) as client:
            obj = await object_or_none(client, PODS, pod, namespace)
            if obj is None or not has_checks(obj):
                return None
            gang = gang_of(obj)
            if gang is None:
                return checks_in(obj, (), None)
            others = await self._checked_pods(client, namespace)
            return checks_in(obj, others, await self._config_map(client, namespace, gang))

    async def _checked_pods(self, client: KubeClient, namespace: str) -> list[Object]:
        """The pods of a namespace that have checks; none where they may not be read."""
        try:
            return (await client.list(PODS, Selection(namespace, labels=CHECKED))).items
        except ForbiddenError as error:
            self._notes[f"It was not checked how far the other pods of the gang are: {error}"] = None
            return []

    async def _config_map(self, client: KubeClient, namespace: str, gang: str) -> Object | None:
        """The ConfigMap of a gang, where there is one that may be read."""
        try:
            return await object_or_none(client, CONFIG_MAPS, gang_config_map(gang), namespace)
        except ForbiddenError as error:
            self._notes[f"What is there of the pod's gang could not be read: {error}"] = None
            return None

    async def shares(self, name: str, at: datetime | None = None) -> None:  # noqa: ARG002 - as the protocol has it
        """What is reserved and not bound yet stands in the ledger alone.

        Raises:
            RequestError: a time in the past is meant.
        """
        refuse_past(at)

    async def staleness(self) -> None:
        """Nobody can say without the past."""
        return

    async def _facts(self, client: KubeClient, one: PresentKind) -> list[Fact]:
        """The facts that the objects of a kind are; none, which is noted, where the cluster does not serve it."""
        kind, resource = one.kind, one.kind.resource
        if kind.older:
            resource = await first_served(client, (resource, *kind.older)) or resource
        try:
            parts = await self._parts(client, resource, one)
        except NotFoundError:
            if not kind.older:  # those are of an optional feature
                self._notes[f"The cluster does not serve {resource.full_name} in version {resource.version}."] = None
            return []
        self._notes |= dict.fromkeys(problem_notes(resource.plural, (dated.part for dated in parts)))
        return facts_of(kind, parts)

    async def _parts(self, client: KubeClient, resource: Resource, one: PresentKind) -> list[DatedPart]:
        if one.may_be_absent:
            return await self._all_that_may_be_read(client, resource, one.read)
        return (await client.collect(resource, one.read)).items

    async def _all_that_may_be_read(
        self, client: KubeClient, resource: Resource, read: Callable[[Object], T]
    ) -> list[T]:
        """The objects of all namespaces, else those of one, else none."""
        try:
            return (await client.collect(resource, read)).items
        except ForbiddenError as error:
            follows = UNREAD.get(resource.plural, "they count as if there were none")
            self._notes[f"Not all {resource.plural} could be read, so {follows}: {error}"] = None
        if self._namespace is None or not resource.namespaced:
            return []
        return (await client.collect(resource, read, Selection(self._namespace))).items


async def _if_served(client: KubeClient, resource: Resource) -> list[Object]:
    """The objects of a kind; none where the cluster does not have it."""
    try:
        return (await client.list(resource, ALL)).items
    except NotFoundError:
        return []
