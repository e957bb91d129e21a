"""Drains on an API server for tests: what becomes of an intent, pods that end, and pods that a budget keeps."""

from typing import Any

from gpuledger.api.kinds import PODS, Resource
from gpuledger.edge.kube.client import Selection
from gpuledger.events.envelope import Decoded
from gpuledger.events.maintenance import Drain
from support.nodewriting import Maintainer
from support.waiting import eventually

BUDGETS = Resource("policy", "v1", "poddisruptionbudgets", "PodDisruptionBudget", namespaced=True)
IMMEDIATE = Drain(mode="Immediate")


async def until(maintainer: Maintainer, intent: Decoded, kind: type, state: str = "") -> Decoded:
    """The first report or outcome of this kind, one pod of which is in that state."""
    found: list[Decoded] = []

    async def is_there() -> bool:
        found[:] = [
            one
            for one in await maintainer.outcomes(intent)
            if isinstance(one.data, kind)
            and (not state or any(state in pod.state for pod in getattr(one.data, "pods", ())))
        ]
        return bool(found)

    await eventually(is_there)
    return found[0]


async def ending(maintainer: Maintainer, node: str) -> None:
    """Pods of the node that were evicted end, once none is left but those."""

    async def is_ended() -> bool:
        found = (await maintainer.client.list(PODS, Selection(fields=f"spec.nodeName={node}"))).items
        if any("deletionTimestamp" not in one["metadata"] for one in found):
            return False
        for one in found:
            await maintainer.end(one)
        return True

    await eventually(is_ended)


async def blocked_pod(maintainer: Maintainer, name: str, node: str, **more: Any) -> str:
    """A pod that a disruption budget keeps; returns its uid."""
    made = await maintainer.pod(name, node, labels={"app": name}, **more)
    spec = {"minAvailable": 1, "selector": {"matchLabels": {"app": name}}}
    await maintainer.client.create(BUDGETS, {"metadata": {"name": f"pdb-{name}", "namespace": "default"}, "spec": spec})
    return str(made["metadata"]["uid"])
