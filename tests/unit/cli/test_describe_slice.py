"""The page of a ResourceSlice: where its status comes from, and what a closed feature gate leaves of it."""

import io
from typing import Any

import pytest

from gpuledger.cli.describe.slice import (
    NodeResources,
    SliceDescription,
    SliceObjects,
    SliceOfNode,
    resources_tree,
    slice_page,
    status_of,
)
from gpuledger.cli.render import Console
from gpuledger.cli.render.page import Page
from gpuledger.domain.dra.objects import PoolId
from gpuledger.tools.cluster import KubeReply
from gpuledger.tools.explain.access import Readable
from gpuledger.tools.queries.slice_statuses import Staleness
from support.dra import DRIVER, RecordedSlices, device, given, published, result
from support.events import hour

EVERYTHING = Readable("all", everywhere=True)
STALE = Staleness(hour(5), "the feature gate DRAResourceAvailabilityVisibility is off")
SINCE = f"Status in Kubernetes: {STALE}"
FROZEN: dict[str, Any] = {"status": {"summary": {"totalDevices": 7}}}
PUBLISHED = published(device("gpu-0"), device("gpu-1"))

Reply = KubeReply[SliceObjects]
FOUND, ABSENT, NOT_ASKED = Reply(SliceObjects(FROZEN, [])), Reply(SliceObjects(None, [])), Reply(None, "not asked")


def described(stale: Staleness | None) -> SliceDescription:
    recorded = RecordedSlices(("s1", PUBLISHED), ("ns/c", given(result("gpu-0"))))
    return SliceDescription(recorded.state.slice.rows["s1"], PUBLISHED, recorded.status("s1"), False, stale=stale)


def lines(page: Page) -> list[str]:
    out = io.StringIO()
    page.show(Console(out, io.StringIO()))
    return [" ".join(line.split()) for line in out.getvalue().splitlines()]


@pytest.mark.parametrize(
    ("stale", "reply", "origin", "since", "total"),
    [
        (None, FOUND, "Kubernetes", None, 7),
        (None, ABSENT, "the ledger; Kubernetes has no such object", None, 2),
        (None, NOT_ASKED, "the ledger", None, 2),
        (STALE, FOUND, "the ledger", SINCE, 2),
        (STALE, ABSENT, "the ledger; Kubernetes has no such object", None, 2),
        (STALE, NOT_ASKED, "the ledger", SINCE, 2),
    ],
)
def test_a_status_that_is_stale_in_kubernetes_is_not_shown(
    stale: Staleness | None, reply: Reply, origin: str, since: str | None, total: int
) -> None:
    facts = described(stale)
    page = lines(slice_page(facts, reply, EVERYTHING))
    assert f"Status from: {origin}" in page
    assert [line for line in page if line.startswith("Status in Kubernetes")] == ([since] if since else [])
    assert f"Total Devices: {total}" in page
    assert status_of(facts, reply)[0] == origin


@pytest.mark.parametrize("stale", [None, STALE])
def test_a_nodes_section_says_since_when_kubernetes_is_stale(stale: Staleness | None) -> None:
    status = described(stale).status
    resources = NodeResources({PoolId(DRIVER, "n1"): [SliceOfNode("s1", PUBLISHED, status)]}, stale)
    page = Page()
    page.tree(resources_tree(resources, EVERYTHING))
    assert (f"Statuses in Kubernetes: {STALE}" in lines(page)) is (stale is not None)
