"""Why an API server refuses a new object."""

from typing import Any

from gpuledger.api.kinds import PODS, Resource
from gpuledger.edge.kube.client import KubeClient
from gpuledger.edge.kube.errors import AlreadyExistsError, KubeError


async def refusal(client: KubeClient, given: dict[str, Any], resource: Resource = PODS) -> str:
    """Why an object is refused; empty where it is not, and is there now."""
    try:
        await client.create(resource, given)
    except AlreadyExistsError:
        return ""
    except KubeError as error:
        return str(error)
    return ""


async def is_refused(client: KubeClient, given: dict[str, Any], reason: str) -> bool:
    """Whether a pod is refused for that reason."""
    return f"{reason}: " in await refusal(client, given)
