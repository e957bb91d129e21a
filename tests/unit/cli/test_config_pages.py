"""The pages of `describe machineconfigpool` and `config status`."""

import io

import pytest

from gpuledger.cli.describe.config_pool import ConfigPoolDescription, config_pool_page
from gpuledger.cli.render import Console
from gpuledger.cli.render.config_status_page import bar_text, config_status_page, counts_text
from gpuledger.cli.render.page import Page
from gpuledger.tools.cluster import KubeReply
from gpuledger.tools.machineconfig.listing import history_rows, node_rows, pool_row
from gpuledger.tools.machineconfig.progress import progress_document, progress_of
from gpuledger.tools.machineconfig.tables import spec_of
from support import config_tables as rows
from support.config_rollouts import NEW, OLD, POOL, changed, rendered

TABLES = rows.tables_of(
    pools=(rows.pool_row(max_unavailable="25%", prefers_idle=True),),
    rendered=(rows.rendered_row(rendered(OLD, "base"), 1), rows.rendered_row(rendered(NEW, "base", "sysctl"), 2)),
    statuses=(rows.status_row(changed(NEW, 1)),),
    nodes=(
        rows.node_row("n1", NEW, labels='{"topology.kubernetes.io/zone":"zone-a"}'),
        rows.node_row("n2", OLD, phase="Draining", drain_retries=2, message="waits for ml/trainer"),
        rows.node_row("n3", OLD),
    ),
)


def text(page: Page) -> str:
    out = io.StringIO()
    page.show(Console(out, io.StringIO()))
    return "\n".join(" ".join(line.split()) for line in out.getvalue().splitlines())


def test_the_page_of_a_pool_has_all_there_is_to_say() -> None:
    pool = TABLES.pools[POOL]
    row = pool_row(pool, TABLES.statuses[POOL])
    facts = ConfigPoolDescription(row, spec_of(pool), node_rows(TABLES, POOL), list(history_rows(TABLES, POOL)))
    page = text(config_pool_page(facts, KubeReply([])))
    for line in (
        f"Target: {NEW}",
        "Updated: 1",
        "Max Unavailable: 25%",
        "Prefer Idle: true",
        "Drain Retry: 300s",
        "Updating True RolloutInProgress",
        f"{NEW} target 1",
        "base, sysctl",
        "waits for ml/trainer",
        "n1 zone-a Idle",
    ):
        assert line in page, page
    assert page.index("n2 ") < page.index("n3 ") < page.index("n1 ")


def test_the_status_of_a_rollout_is_a_bar_with_the_nodes_in_flight() -> None:
    document = progress_document(progress_of(TABLES, POOL))
    assert counts_text(document) == f"[{'#' * 8}{'-' * 16}] 1/3 updated, 1 in flight, 1 waiting"
    page = text(config_status_page(document))
    assert "Waiting: n3" in page
    assert "n2 <none> Draining" in page
    assert "all nodes are up to date" not in page


@pytest.mark.parametrize(("done", "total", "cells"), [(0, 0, 24), (0, 5, 0), (4, 5, 19), (999, 1000, 23), (5, 5, 24)])
def test_a_bar_is_full_only_where_all_is_done(done: int, total: int, cells: int) -> None:
    assert bar_text(done, total) == f"[{'#' * cells}{'-' * (24 - cells)}]"
