"""What an API server says about itself: which kinds it serves, and which cluster it is. Nothing here guesses."""

from collections.abc import Iterable
from typing import Any, Final

from gpuledger.api.kinds import NAMESPACES, Resource
from gpuledger.edge.kube.client import Ask, KubeClient

CLUSTER_NAMESPACE: Final = "kube-system"
"""Its uid is what a cluster is known by; it lives as long as the cluster's data."""


async def is_served(client: KubeClient, resource: Resource) -> bool:
    """Whether the API server serves a kind at all, by its own word.

    Raises:
        KubeError: it does not say.
    """
    if not resource.group:
        return True
    groups = await _discover(client, "/apis")
    served = {
        version.get("groupVersion") for group in groups.get("groups") or () for version in group.get("versions") or ()
    }
    if resource.api_version not in served:
        return False
    kinds = await _discover(client, f"/apis/{resource.api_version}")
    return any(one.get("name") == resource.plural for one in kinds.get("resources") or ())


async def first_served(client: KubeClient, resources: Iterable[Resource]) -> Resource | None:
    """The first of these that the API server serves, by its own word; None where it serves none.

    Raises:
        KubeError: it does not say.
    """
    for resource in resources:
        if await is_served(client, resource):
            return resource
    return None


async def cluster_of(client: KubeClient) -> str:
    """What tells the cluster from every other.

    Raises:
        KubeError: it does not say.
    """
    namespace = await client.get(NAMESPACES, CLUSTER_NAMESPACE)
    return str(namespace.get("metadata", {}).get("uid", ""))


async def _discover(client: KubeClient, path: str) -> dict[str, Any]:
    return await client.ask(Ask(f"discover {path}", "GET", path))
