"""What `gpuledger doctor` makes of who leads."""

from datetime import UTC, datetime

from gpuledger.db.locks import LockHolder
from gpuledger.tools.doctor import Status, leaders_check

SINCE = datetime(2026, 5, 4, 3, 2, 1, tzinfo=UTC)
HOLDER = LockHolder("gpuledger devices", "pod-1/1", SINCE)


def test_it_names_the_process_that_leads_and_since_when() -> None:
    found = leaders_check({"devices": HOLDER, "nodes": HOLDER._replace(application="gpuledger nodes")})
    assert (found.status, found.detail) == (Status.OK, "pod-1/1 writes devices, nodes since 2026-05-04 03:02:01Z")


def test_a_projection_that_nobody_leads_beside_others_is_named() -> None:
    found = leaders_check({"devices": HOLDER, "nodes": None, "pools": LockHolder("by hand", "session 7", None)})
    assert found.status is Status.WARNING
    assert found.detail == (
        "pod-1/1 writes devices since 2026-05-04 03:02:01Z; session 7 writes pools. "
        "Nobody writes nodes: see /healthz for the reason."
    )


def test_nobody_need_lead() -> None:
    assert leaders_check({"devices": None}).status is Status.OK
