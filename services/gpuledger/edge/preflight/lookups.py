"""Looks up what reviews of pods need: namespaces, and the requests of claims. It never keeps a review waiting for long.

What was found counts for some seconds, so the pods of a gang, which have one template and one namespace, cost one
request. What cannot be found in time is not there for that review; nothing is retried.
"""

import asyncio
from collections import OrderedDict
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import structlog

from gpuledger.api.kinds import NAMESPACES, Resource
from gpuledger.edge.kube.client import KubeClient
from gpuledger.edge.kube.errors import KubeError, NotFoundError
from gpuledger.edge.kube.objects import mapping
from gpuledger.edge.preflight.claims import ClaimReference, Classes, device_classes
from gpuledger.edge.preflight.metrics import LOOKUPS
from gpuledger.edge.preflight.settings import PreflightSettings
from gpuledger.edge.webhooks.serving.review import Object

Key = tuple[str, str, str]
Read = Callable[[Object], Any]

log = structlog.get_logger("gpuledger.preflight")


class _Kept(NamedTuple):
    found: Any
    until_s: float


class _Sought(NamedTuple):
    key: Key
    resource: Resource
    read: Read


class Lookups:
    """Objects of the API server, as far as reviews need them."""

    def __init__(self, client: KubeClient, settings: PreflightSettings, monotonic: Callable[[], float]) -> None:
        self._client = client
        self._settings = settings
        self._monotonic = monotonic
        self._kept: OrderedDict[Key, _Kept] = OrderedDict()
        self._under_way: dict[Key, asyncio.Task[Any]] = {}
        self._slots = asyncio.Semaphore(settings.lookups_at_once_max)

    async def find(self, namespace: str, claims: Sequence[ClaimReference]) -> tuple[Object | None, Classes]:
        """A namespace and the DeviceClasses of claims in it, by the pod's name for the claim, all at once.

        Of the namespace there are labels and annotations; None where nobody could find them out in time.
        """
        sought = [_Sought((NAMESPACES.plural, "", namespace), NAMESPACES, _metadata)]
        sought += [_Sought((one.resource.plural, namespace, one.name), one.resource, device_classes) for one in claims]
        begun = [self._kept_of(one.key) or self._task(one) for one in sought]
        found, *classes = [one.found if isinstance(one, _Kept) else await asyncio.shield(one) for one in begun]
        return found, {one.claim: of_claim for one, of_claim in zip(claims, classes, strict=True)}

    def _kept_of(self, key: Key) -> _Kept | None:
        kept = self._kept.get(key)
        return kept if kept is not None and kept.until_s > self._monotonic() else None

    def _task(self, sought: _Sought) -> "asyncio.Task[Any]":
        """The look-up, which is under way at once; that of another review, where it is already."""
        key = sought.key
        task = self._under_way.get(key)
        if task is None:
            task = self._under_way[key] = asyncio.create_task(self._look_up(sought))
            task.add_done_callback(lambda _: self._under_way.pop(key, None))
        return task

    async def _look_up(self, sought: _Sought) -> Any:  # noqa: ANN401 - as `read`
        key, resource, read = sought
        _, namespace, name = key
        try:
            async with asyncio.timeout(self._settings.lookup_timeout_s), self._slots:
                found = read(await self._client.get(resource, name, namespace or None))
        except NotFoundError:
            LOOKUPS.labels(resource.plural, "missing").inc()
            self._keep(key, None, self._settings.missing_s)
            return None
        except (KubeError, TimeoutError) as error:
            LOOKUPS.labels(resource.plural, "failed").inc()
            log.warning(
                "preflight.lookup-failed", kind=resource.plural, namespace=namespace, name=name, reason=str(error)
            )
            return None
        LOOKUPS.labels(resource.plural, "found").inc()
        self._keep(key, found, self._settings.found_s)
        return found

    def _keep(self, key: Key, found: object, life_s: float) -> None:
        self._kept[key] = _Kept(found, self._monotonic() + life_s)
        self._kept.move_to_end(key)
        while len(self._kept) > self._settings.lookups_kept_max:
            self._kept.popitem(last=False)


def _metadata(obj: Object) -> Object:
    metadata = mapping(obj, "metadata")
    return {"metadata": {key: mapping(metadata, key) for key in ("labels", "annotations")}}
