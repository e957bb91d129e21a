"""Discovery of an API server: which kinds it serves, and which cluster it belongs to. Nothing here guesses."""

from collections.abc import Iterable
from typing import Any, Final

from gpuledger.api.kinds import NAMESPACES, Resource
from gpuledger.edge.kube.client import KubeClient, KubeRequest

CLUSTER_NAMESPACE: Final = "kube-system"
"""Its uid identifies the cluster; it lives as long as the cluster's data."""


async def is_served(client: KubeClient, resource: Resource) -> bool:
    """Whether the API server serves a kind.

    Raises:
        KubeError: it does not answer.
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
    """The first of these kinds that the API server serves; None where it serves none.

    Raises:
        KubeError: it does not answer.
    """
    for resource in resources:
        if await is_served(client, resource):
            return resource
    return None


async def cluster_of(client: KubeClient) -> str:
    """The id of the cluster.

    Raises:
        KubeError: it does not answer.
    """
    namespace = await client.get(NAMESPACES, CLUSTER_NAMESPACE)
    return str(namespace.get("metadata", {}).get("uid", ""))


async def _discover(client: KubeClient, path: str) -> dict[str, Any]:
    return await client.send(KubeRequest(f"discover {path}", "GET", path))
