"""What `gpuledger doctor` makes of who leads, and of the stream's replicas."""

from datetime import UTC, datetime

import pytest
from nats.js.api import ClusterInfo, PeerInfo, StreamInfo, StreamState

from gpuledger.db.locks import LockHolder
from gpuledger.ledger.stream import stream_config
from gpuledger.tools.doctor import Status, leaders_check, replicas_check

SINCE = datetime(2026, 5, 4, 3, 2, 1, tzinfo=UTC)
HOLDER = LockHolder("gpuledger devices", "pod-1/1", SINCE)


def test_it_names_the_process_that_leads_and_since_when() -> None:
    found = leaders_check({"devices": HOLDER, "nodes": HOLDER._replace(application="gpuledger nodes")})
    assert (found.status, found.detail) == (Status.OK, "pod-1/1 leads devices, nodes since 2026-05-04 03:02:01Z")


def test_a_projection_that_nobody_leads_beside_others_is_named() -> None:
    found = leaders_check({"devices": HOLDER, "nodes": None, "pools": LockHolder("by hand", "session 7", None)})
    assert found.status is Status.WARNING
    assert found.detail == (
        "pod-1/1 leads devices since 2026-05-04 03:02:01Z; session 7 leads pools. "
        "Nobody leads nodes: see /healthz for the reason."
    )


def test_nobody_need_lead() -> None:
    assert leaders_check({"devices": None}).status is Status.OK


CURRENT, LATE = PeerInfo("n1", current=True), PeerInfo("n2", current=False, lag=1203)
AWAY = PeerInfo("n2", current=False, offline=True)


def info(replicas: int, cluster: ClusterInfo | None) -> StreamInfo:
    return StreamInfo(stream_config(1, replicas), StreamState(0, 0, 0, 0, 0), cluster=cluster)


def of_cluster(*peers: PeerInfo) -> ClusterInfo:
    return ClusterInfo("n0", "lab", list(peers))


@pytest.mark.parametrize(
    ("found", "servers", "status", "words"),
    [
        (info(1, None), 0, Status.OK, "a server that belongs to no cluster"),
        (info(1, ClusterInfo("n0")), 0, Status.OK, "a server that belongs to no cluster"),
        (info(1, of_cluster()), 2, Status.OK, "1 in the cluster lab"),
        (info(1, of_cluster()), 3, Status.WARNING, "it has one. Set GPULEDGER_NATS_REPLICAS=3 and run"),
        (info(1, of_cluster()), 0, Status.WARNING, "if it has as many servers with JetStream"),
        (info(3, of_cluster(CURRENT, CURRENT)), 3, Status.OK, "3 in the cluster lab, led by n0; all are current"),
        (info(3, of_cluster(CURRENT, LATE)), 3, Status.WARNING, "on n2 is not current (1,203 operations behind)"),
        (info(3, of_cluster(CURRENT, AWAY)), 2, Status.WARNING, "The replica on n2 is offline"),
    ],
)
def test_replicas(found: StreamInfo, servers: int, status: Status, words: str) -> None:
    check = replicas_check(found, servers)
    assert (check.status, words in check.detail) == (status, True), check
