"""The remediator for tests: quick to look again, killed at any step, and a cluster with kinds of remedies."""

from collections.abc import AsyncIterator
from contextlib import aclosing, asynccontextmanager
from typing import Any

from gpuledger.api.kinds import NODES, Resource
from gpuledger.db.locks import LockCheck
from gpuledger.domain.remediation.rules import object_of
from gpuledger.edge.kube.client import KubeClient, Object
from gpuledger.edge.kube.crds import install
from gpuledger.edge.remediator.service import Remediator
from gpuledger.edge.remediator.settings import RemediatorSettings
from gpuledger.events.envelope import Decoded, Event, decode
from gpuledger.events.payload import Payload
from gpuledger.events.position import is_at_or_after
from gpuledger.events.remediation import RemediationCancelled, RemediationRequested, Remedy
from gpuledger.ledger.jetstream import JetStreamLedger
from gpuledger.projection.followed_log import FollowedLog
from gpuledger.runtime.clock import random_id, system_clock
from support.events import outgoing
from support.kept_running import kept_running
from support.killing import SteppingClient, SteppingLedger, Steps, was_killed
from support.ledgers import everything
from support.nodewriting import BACKOFF, Maintainer
from support.remediation import REBOOT
from support.waiting import eventually

QUICK_REMEDIATOR = RemediatorSettings(
    poll_s=0.05, backoff=BACKOFF, refused_backoff=BACKOFF, restart_backoff=BACKOFF,
    lock_check=LockCheck(interval_s=0.1), ownership_check_s=60.0, refusals_max=3,
)  # fmt: skip
REBOOTS = Resource("example.com", "v1", "reboots", "Reboot")


def remedy_crd(resource: Resource) -> Object:
    """A CRD of a kind of remedy, with any spec and a status of its own."""
    anything = {"type": "object", "x-kubernetes-preserve-unknown-fields": True}
    schema = {"type": "object", "properties": {"spec": anything, "status": anything}}
    version = {
        "name": resource.version, "served": True, "storage": True, "subresources": {"status": {}},
        "schema": {"openAPIV3Schema": schema},
    }  # fmt: skip
    names = {"plural": resource.plural, "singular": resource.kind.lower(), "kind": resource.kind}
    names["listKind"] = f"{resource.kind}List"
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": resource.full_name},
        "spec": {"group": resource.group, "scope": "Cluster", "names": names, "versions": [version]},
    }


async def install_remedies(client: KubeClient) -> None:
    """Have the API server serve the kind of a reboot."""
    await install(client, [remedy_crd(REBOOTS)])


async def show(client: KubeClient, obj: Object, condition: str, status: str = "True") -> None:
    """The controller of a kind sets a condition of an object."""
    found = {"type": condition, "status": status, "reason": "Tested", "message": "by a test"}
    body = {"status": {"conditions": [found]}}
    await client.merge_patch(REBOOTS, obj["metadata"]["name"], body, subresource="status")


class Requester(Maintainer):
    """Remediations as the decider records them, about Nodes that exist, and what became of them."""

    async def remediate(self, node: str, uid: str | None = None, **fields: Any) -> Decoded:
        """Record an intent about a Node."""
        remedy = Remedy.model_validate(REBOOT)
        made = object_of(remedy, random_id(), {"node": node, "action": "RESTART_BM"})
        uid = uid or (await self.client.get(NODES, node))["metadata"]["uid"]
        given = {
            "uid": uid, "remedy": "reboot", "group": "restart",
            "scope": "node", "action": "RESTART_BM", "attempt": 1, "rules": "b" * 64, "object": made,
            "faults": [{"monitor": "m", "check": "c", "report": "r1"}], "succeeded": remedy.succeeded,
            "failed": remedy.failed, "timeout_s": 600,
        }  # fmt: skip
        times = {key: fields.pop(key) for key in ("time", "imported") if key in fields}
        return await self._decide(node, RemediationRequested.model_validate({**given, **fields}), **times)

    async def cancel(self, intent: Decoded) -> None:
        """The object is not needed any more."""
        await self._decide(intent.subject, RemediationCancelled(intent=intent.id, reason="Healthy"))

    async def results(self, intent: Decoded) -> list[Payload]:
        """What was recorded of a remediation, each once however often it was."""
        found = [decode(one.data) for one in await everything(self.ledger) if ".svc.remediator." in one.subject]
        return [one.data for one in {one.id: one for one in found if one.causation_id == intent.id}.values()]

    async def reboots(self) -> list[Object]:
        """The objects that are there."""
        return (await self.client.list(REBOOTS)).items

    async def _decide(self, node: str, data: Payload, **more: Any) -> Decoded:
        self._number += 1
        time = more.pop("time", None) or system_clock()
        intent: Decoded = Event(
            random_id(), "/services/remediation", data.TYPE, node, time, data, "e1", self._number, **more
        )
        await self.ledger.publish_many([outgoing(intent)])
        return intent


@asynccontextmanager
async def remediator(
    ledger: JetStreamLedger,
    database_url: str,
    client: KubeClient,
    settings: RemediatorSettings = QUICK_REMEDIATOR,
) -> AsyncIterator[Remediator]:
    """A remediator that runs until the block ends."""
    async with (
        aclosing(FollowedLog((), ledger, database_url)) as followed,
        kept_running(Remediator(ledger, database_url, client, followed, settings=settings)) as writer,
    ):
        yield writer


async def all_done(writer: Remediator, ledger: JetStreamLedger) -> None:
    """Return when nothing is left to do for any remediation in the ledger."""
    head = await ledger.head()

    async def is_done() -> bool:
        health = writer.health()
        return not health.open and health.state == "writing" and is_at_or_after(health.position, head)

    await eventually(is_done)


async def remediate_until_killed(
    ledger: JetStreamLedger, database_url: str, client: SteppingClient, steps: Steps
) -> bool:
    """Run a remediator until it is killed, or nothing is left to do; says whether it was killed."""
    stepping = SteppingLedger(ledger, steps)
    async with aclosing(FollowedLog((), stepping, database_url)) as followed:
        writer = Remediator(stepping, database_url, client, followed, settings=QUICK_REMEDIATOR)
        return await was_killed(writer, all_done(writer, ledger), client, steps)
