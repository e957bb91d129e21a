"""Takes the webhooks out of a cluster, so that nothing there waits for an answer that nobody gives any more."""

from gpuledger.api.kinds import Resource
from gpuledger.edge.admission.certificates.webhook_configuration import MUTATING, NAME, VALIDATING
from gpuledger.edge.kube.client import KubeClient
from gpuledger.edge.kube.errors import NotFoundError


async def remove(client: KubeClient) -> list[str]:
    """Delete both configurations; returns the kinds of those that were there.

    Raises:
        KubeError: the API server cannot be used.
    """
    return [resource.kind for resource in (MUTATING, VALIDATING) if await _is_removed(client, resource)]


async def _is_removed(client: KubeClient, resource: Resource) -> bool:
    try:
        await client.delete(resource, NAME)
    except NotFoundError:
        return False
    return True
