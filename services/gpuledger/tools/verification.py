"""Verifies that the tables, and the objects in Kubernetes, are what the log says."""

from collections.abc import Sequence
from typing import NamedTuple

from gpuledger.edge.kube.client import KubeClient
from gpuledger.edge.statuswriter.reconcile.verify import KubeVerification, compare
from gpuledger.projection.verify import Verification, verify
from gpuledger.tools.cluster import KubeAccess, open_kube
from gpuledger.tools.queries.backend import Backend, bring_current, named_projections


class Verified(NamedTuple):
    """The outcome for each projection, and for the objects in Kubernetes, where they were compared."""

    projections: list[Verification]
    objects: KubeVerification | None


async def verify_all(backend: Backend, names: Sequence[str], access: KubeAccess | None) -> Verified:
    """Compare the named projections (all, if there are no names), and with `access` the objects in Kubernetes."""
    found = []
    await bring_current(backend, named_projections(names))
    for projection in named_projections(names):
        with backend.reporter.progress(f"Verifying {projection.name}") as advance:
            found.append(
                await verify(projection, backend.ledger, backend.database_url, lambda done, _total: advance.to(done))
            )
    return Verified(found, None if access is None else await _objects(backend, access))


async def _objects(backend: Backend, access: KubeAccess) -> KubeVerification:
    async with open_kube(access, KubeClient) as client:
        with backend.reporter.progress("Verifying Kubernetes") as advance:
            return await compare(client, backend.ledger, lambda done, _total: advance.to(done))
