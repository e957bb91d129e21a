"""Certificates that several replicas share: kept in secrets, of which the first writer wins.

Whoever finds none creates one; who was slower, or changes what another has changed meanwhile, reads again and takes
what is there. Keys leave this process only into the secret.
"""

import base64
import binascii
from collections.abc import Callable
from datetime import datetime
from typing import Any, Final

import structlog

from gpuledger.api.kinds import SECRETS
from gpuledger.edge.admission.certificates.authority import Pair, read_pair
from gpuledger.edge.admission.errors import CertificateError
from gpuledger.edge.kube.client import KubeClient
from gpuledger.edge.kube.errors import ConflictError, NotFoundError

ROUNDS_MAX: Final = 8
"""How often a secret is read anew because another replica was faster."""

SECRET_TYPE: Final = "kubernetes.io/tls"  # noqa: S105 - a type of secrets

Wanted = Callable[[Pair | None, datetime], Pair]
"""The pair that is to be kept, given the one that is: the very same where nothing has to change."""

log = structlog.get_logger("gpuledger.admission")


async def kept(client: KubeClient, namespace: str, name: str, wanted: Wanted, now: datetime) -> Pair:
    """The pair that the secret holds from now on.

    Raises:
        ConflictError: the secret changed again and again meanwhile.
        KubeError: the API server cannot be used.
    """
    for _ in range(ROUNDS_MAX - 1):
        try:
            return await _kept(client, namespace, name, wanted, now)
        except (ConflictError, NotFoundError):
            continue
    return await _kept(client, namespace, name, wanted, now)


async def _kept(client: KubeClient, namespace: str, name: str, wanted: Wanted, now: datetime) -> Pair:
    try:
        secret = await client.get(SECRETS, name, namespace)
    except NotFoundError:
        pair = wanted(None, now)
        await client.create(SECRETS, _secret(namespace, name, pair))
        log.info("admission.certificate-created", secret=name)
        return pair
    known = _read(secret)
    pair = wanted(known, now)
    if pair != known:
        version = secret["metadata"]["resourceVersion"]
        await client.replace(SECRETS, _secret(namespace, name, pair, version, secret.get("type")))
        log.info("admission.certificate-renewed", secret=name)
    return pair


def _read(secret: dict[str, Any]) -> Pair | None:
    try:
        return read_pair({key: base64.b64decode(value) for key, value in (secret.get("data") or {}).items()})
    except (CertificateError, binascii.Error) as error:
        log.warning("admission.certificate-unusable", secret=secret["metadata"]["name"], reason=str(error))
        return None


def _secret(
    namespace: str, name: str, pair: Pair, version: str | None = None, kind: str | None = None
) -> dict[str, Any]:
    metadata = {"name": name, "namespace": namespace} | ({"resourceVersion": version} if version else {})
    data = {key: base64.b64encode(value).decode() for key, value in pair.data().items()}
    return {"apiVersion": "v1", "kind": "Secret", "metadata": metadata, "type": kind or SECRET_TYPE, "data": data}
