"""Writes the Secrets of the servers that the chart brings, as `desired` decides, and removes them with the release.

Passwords and keys leave this process only into the Secrets; no message shows one.
"""

import base64
import binascii
from typing import Any, Final, NamedTuple

from gpuledger.api.bundled import PARTS, BundledServers
from gpuledger.api.kinds import MANAGED_BY, SECRETS
from gpuledger.edge.kube.client import KubeClient
from gpuledger.edge.kube.errors import ConflictError, NotFoundError
from gpuledger.runtime.clock import Clock
from gpuledger.tools.bundled.desired import Draw, desired_secrets

TRIES_MAX: Final = 8
"""How often the Secrets are read again because somebody else changed one meanwhile."""


class Written(NamedTuple):
    """What became of one Secret: created, updated or unchanged."""

    name: str
    change: str


async def write_secrets(client: KubeClient, servers: BundledServers, clock: Clock, draw: Draw) -> list[Written]:
    """Create the Secrets that are missing, and update those whose content has to change.

    Raises:
        ConflictError: others changed them again and again meanwhile.
        KubeError: the API server cannot be used, or does not let us.
    """
    for _ in range(TRIES_MAX - 1):
        try:
            return await _write(client, servers, clock, draw)
        except ConflictError:
            continue
    return await _write(client, servers, clock, draw)


async def _write(client: KubeClient, servers: BundledServers, clock: Clock, draw: Draw) -> list[Written]:
    found = {part: await _read(client, servers, part) for part in PARTS}
    current = {part: _decoded(secret) for part, secret in found.items() if secret is not None}
    desired = desired_secrets(current, servers, clock(), draw)
    written = []
    for part, data in desired.items():
        if current.get(part) == data:
            change = "unchanged"
        elif (secret := found[part]) is None:
            await client.create(SECRETS, _secret(servers, part, data))
            change = "created"
        else:
            version = secret["metadata"]["resourceVersion"]
            await client.replace(SECRETS, _secret(servers, part, current[part] | data, version))
            change = "updated"
        written.append(Written(servers.secret(part), change))
    return written


async def _read(client: KubeClient, servers: BundledServers, part: str) -> dict[str, Any] | None:
    try:
        return await client.get(SECRETS, servers.secret(part), servers.namespace)
    except NotFoundError:
        return None


def _decoded(secret: dict[str, Any]) -> dict[str, bytes]:
    """The data of a Secret, less what somebody damaged."""
    decoded = {}
    for key, value in (secret.get("data") or {}).items():
        try:
            decoded[key] = base64.b64decode(value, validate=True)
        except binascii.Error:
            continue
    return decoded


def _secret(servers: BundledServers, part: str, data: dict[str, bytes], version: str | None = None) -> dict[str, Any]:
    metadata: dict[str, Any] = {
        "name": servers.secret(part),
        "namespace": servers.namespace,
        "labels": {"app.kubernetes.io/managed-by": MANAGED_BY, "app.kubernetes.io/part-of": "gpuledger"},
    }
    if version is not None:
        metadata["resourceVersion"] = version
    encoded = {key: base64.b64encode(value).decode() for key, value in sorted(data.items())}
    return {"apiVersion": "v1", "kind": "Secret", "metadata": metadata, "type": "Opaque", "data": encoded}
