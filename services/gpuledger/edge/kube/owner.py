"""The ClusterRole of a release that owns what gpuledger makes for a part of it, so that both go together.

Kubernetes deletes what an object owned soon after the object. So whoever takes a part out of a release, with whatever
tool, removes what that part left in the cluster, and its rights to put it back.
"""

from collections.abc import Mapping
from typing import Any, Final

from gpuledger.api.kinds import Resource
from gpuledger.edge.kube.client import KubeClient

CLUSTER_ROLES: Final = Resource("rbac.authorization.k8s.io", "v1", "clusterroles", "ClusterRole")


async def owned(client: KubeClient, obj: Mapping[str, Any], cluster_role: str | None) -> dict[str, Any]:
    """The object with a reference to its owner; as it is where that has no name.

    Raises:
        KubeError: the API server cannot be used, or has no such ClusterRole (`NotFoundError`).
    """
    if cluster_role is None:
        return dict(obj)
    owner = await client.get(CLUSTER_ROLES, cluster_role)
    reference = {"apiVersion": CLUSTER_ROLES.api_version, "kind": CLUSTER_ROLES.kind, "name": cluster_role}
    metadata = {**obj["metadata"], "ownerReferences": [{**reference, "uid": owner["metadata"]["uid"]}]}
    return {**obj, "metadata": metadata}
