"""What the extender asks of an API server, held against the role of the chart: real helm, the real service.

The role is proved both ways: whatever is asked is allowed, and nothing is allowed that nothing asked needs.
"""

from pathlib import Path
from typing import Any

import pytest

from gpuledger.api.kinds import PODS
from gpuledger.ledger.jetstream import JetStreamLedger
from support.chart import NAME, NAMESPACE, needs_helm, render
from support.chart_cluster import Cluster
from support.extending import SharingCluster, scheduling
from support.kube_accounts import config_file
from support.rights import beyond, granted, unused
from support.statuswriting import counting

pytestmark = needs_helm

EXTENDER = f"{NAME}-extender"


@pytest.mark.long
async def test_the_extender_needs_just_the_rights_of_its_role(
    cluster: Cluster, values: dict[str, Any], ledger: JetStreamLedger, migrated_url: str, tmp_path: Path
) -> None:
    values |= {"sharing": {"extender": {"enabled": True, "networkPolicy": False}}}
    assert (await cluster.helm("install", values)).code == 0
    sharing = SharingCluster(ledger, cluster.client)
    await sharing.claim()
    await sharing.share("n1")
    pod, gone = [await sharing.create(name, gpu=100) for name in ("a", "b")]
    kubeconfig = config_file(tmp_path, cluster.client.url, f"{NAMESPACE}:{EXTENDER}")
    async with counting(kubeconfig) as client, scheduling(ledger, migrated_url, client) as scheduler:
        assert await scheduler.fits(pod, "n1") == ["n1"]
        assert await scheduler.bind(pod, "n1") == ""
        await sharing.delete(pod)
        assert await scheduler.fits(gone, "n1") == ["n1"]
        await cluster.client.delete(PODS, "b", "default")
        assert (await scheduler.bind(gone, "n1")).startswith("PodGone: ")
    requested, rules = cluster.requested_by(EXTENDER), granted(render(values), EXTENDER)
    assert (beyond(requested, rules), unused(requested, rules)) == (set(), set())
    assert cluster.server.refused == []
