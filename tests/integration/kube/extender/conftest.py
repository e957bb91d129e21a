"""A cluster with nodes that share devices."""

import pytest

from gpuledger.edge.kube.client import KubeClient
from gpuledger.ledger.jetstream import JetStreamLedger
from support.extending import SharingCluster


@pytest.fixture
async def sharing(ledger: JetStreamLedger, client: KubeClient) -> SharingCluster:
    """A cluster that is the ledger's."""
    found = SharingCluster(ledger, client)
    await found.claim()
    return found
