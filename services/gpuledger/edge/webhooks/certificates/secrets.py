"""Stores certificates in secrets that several replicas share; the first writer wins.

A replica that finds no secret creates one. A replica that was slower, or changes what another has changed meanwhile,
reads again and uses what is there. Keys leave this process only into the secret.
"""

import base64
import binascii
from collections.abc import Callable
from typing import Any, Final

import structlog

from gpuledger.api.kinds import SECRETS
from gpuledger.edge.kube.client import KubeClient
from gpuledger.edge.kube.errors import ConflictError, NotFoundError
from gpuledger.edge.webhooks.certificates.authority import Pair, read_pair
from gpuledger.edge.webhooks.errors import CertificateError

TRIES_MAX: Final = 8
"""How often a replica reads a secret because another replica was faster."""

SECRET_TYPE: Final = "kubernetes.io/tls"  # noqa: S105 - a type of secrets

Renew = Callable[[Pair | None], Pair]
"""Gives the pair to store for the one that is stored: the same one while it need not change."""

log = structlog.get_logger("gpuledger.webhooks")


async def stored_pair(client: KubeClient, namespace: str, name: str, renew: Renew) -> Pair:
    """The pair that the secret holds, once it is renewed where it needs to be.

    Raises:
        ConflictError: the secret changed again and again meanwhile.
        KubeError: the API server cannot be used.
    """
    for _ in range(TRIES_MAX - 1):
        try:
            return await _stored(client, namespace, name, renew)
        except (ConflictError, NotFoundError):
            continue
    return await _stored(client, namespace, name, renew)


async def _stored(client: KubeClient, namespace: str, name: str, renew: Renew) -> Pair:
    try:
        secret = await client.get(SECRETS, name, namespace)
    except NotFoundError:
        pair = renew(None)
        await client.create(SECRETS, _secret(namespace, name, pair))
        log.info("webhooks.certificate-created", secret=name)
        return pair
    current = _read(secret)
    pair = renew(current)
    if pair != current:
        version = secret["metadata"]["resourceVersion"]
        await client.replace(SECRETS, _secret(namespace, name, pair, version, secret.get("type")))
        log.info("webhooks.certificate-renewed", secret=name)
    return pair


def _read(secret: dict[str, Any]) -> Pair | None:
    try:
        return read_pair({key: base64.b64decode(value) for key, value in (secret.get("data") or {}).items()})
    except (CertificateError, binascii.Error) as error:
        log.warning("webhooks.certificate-unusable", secret=secret["metadata"]["name"], reason=str(error))
        return None


def _secret(
    namespace: str, name: str, pair: Pair, version: str | None = None, kind: str | None = None
) -> dict[str, Any]:
    metadata = {"name": name, "namespace": namespace} | ({"resourceVersion": version} if version else {})
    data = {key: base64.b64encode(value).decode() for key, value in pair.data().items()}
    return {"apiVersion": "v1", "kind": "Secret", "metadata": metadata, "type": kind or SECRET_TYPE, "data": data}
