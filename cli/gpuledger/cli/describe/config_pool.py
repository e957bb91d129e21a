"""The page of a MachineConfigPool: its spec, revisions, counters, conditions, nodes, and rendered configurations."""

from collections.abc import Mapping
from typing import Any, NamedTuple

from gpuledger.api.kinds import MACHINE_CONFIG_POOLS
from gpuledger.api.machine_config import drain_retry_s
from gpuledger.cli.describe.pool import selector_text
from gpuledger.cli.describe.sections import CONDITIONS, ROWS_SHOWN, counted, events_section
from gpuledger.cli.get.config_nouns import listed
from gpuledger.cli.render import Column
from gpuledger.cli.render.page import Page, Tree
from gpuledger.edge.kube.client import KubeClient
from gpuledger.events.machine_config import MachineConfigPoolDefined
from gpuledger.tools.cluster import KubeEvent, KubeReply, events_about
from gpuledger.tools.machineconfig.listing import history_rows, node_rows, pool_row
from gpuledger.tools.machineconfig.reading import current_tables
from gpuledger.tools.machineconfig.tables import spec_of
from gpuledger.tools.queries.backend import Backend
from gpuledger.tools.queries.found_rows import RowDict

NODES = (
    Column("Node", "node"),
    Column("Zone", "zone"),
    Column("Phase", "phase"),
    Column("Since", "since"),
    Column("Current", "current"),
    Column("Desired", "desired"),
    Column("Agent", "agent"),
    Column("Cordoned", "cordoned"),
    Column("Drain since", "drain_since"),
    Column("Retries", "retries"),
    Column("Message", "message"),
)
HISTORY = (
    Column("Name", "name"),
    Column("Role", "role"),
    Column("Nodes", "nodes"),
    Column("Rendered", "rendered_at"),
    Column("Reboot", "reboot_required"),
    Column("Sources", "sources", format=listed),
)
_REVISIONS = (
    ("Target", "target"),
    ("Current", "config"),
    ("Last Successful", "last_successful"),
    ("Pinned", "pinned"),
)
_COUNTERS = (
    ("Machines", "machines"),
    ("Ready", "ready"),
    ("Updated", "updated_machines"),
    ("Updating", "updating_machines"),
    ("Degraded", "degraded_machines"),
    ("Cordoned", "cordoned"),
    ("Draining", "draining"),
    ("Pending Reboots", "pending_reboots"),
    ("Unavailable", "unavailable"),
    ("Max Unavailable", "max_unavailable"),
)


class ConfigPoolDescription(NamedTuple):
    """What the ledger has about a pool: its row as `get` lists it, its spec, its nodes and rendered configurations."""

    row: RowDict
    spec: MachineConfigPoolDefined
    nodes: list[RowDict]
    history: list[RowDict]


async def read_config_pool(backend: Backend, name: str) -> ConfigPoolDescription | None:
    """What the ledger has about a pool; None where it has no such pool."""
    tables = await current_tables(backend)
    row = tables.pools.get(name)
    if row is None:
        return None
    described = pool_row(row, tables.statuses.get(name))
    return ConfigPoolDescription(described, spec_of(row), node_rows(tables, name), list(history_rows(tables, name)))


async def read_config_pool_events(client: KubeClient, name: str) -> list[KubeEvent]:
    """The Events about a pool."""
    return await events_about(client, [(MACHINE_CONFIG_POOLS.kind, name)])


def config_pool_page(facts: ConfigPoolDescription, reply: KubeReply[list[KubeEvent]]) -> Page:
    """Lay out the page."""
    page, row = Page(), facts.row
    page.tree(
        {
            "Name": row["name"],
            "UID": row["uid"],
            "Changed": row["changed_at"],
            "Paused": row["paused"],
            "Waits since": row["waits_since"],
            "Problem": row["problem"],
            "Revisions": {name: row[key] for name, key in _REVISIONS},
            "Counters": {name: row[key] for name, key in _COUNTERS},
            "Spec": spec_tree(facts.spec),
        }
    )
    page.table("Conditions", _conditions(row), CONDITIONS[:3] + CONDITIONS[-1:])
    page.table(f"Nodes{counted(facts.nodes)}", facts.nodes[:ROWS_SHOWN], NODES)
    page.table(f"Rendered configurations{counted(facts.history)}", facts.history[:ROWS_SHOWN], HISTORY)
    events_section(page, reply.value, reply.problem)
    return page


def _conditions(row: RowDict) -> list[Mapping[str, Any]]:
    conditions = row["conditions"]
    assert isinstance(conditions, list)
    return conditions


def spec_tree(spec: MachineConfigPoolDefined) -> Tree:
    """The spec by the fields of its manifest."""
    return {
        "Problems": list(spec.problems) or None,
        "Node Selector": "nothing" if spec.node_selector is None else selector_text(spec.node_selector),
        "Machine Config Selector": "nothing" if spec.config_selector is None else selector_text(spec.config_selector),
        "Rollout": {
            "Max Unavailable": spec.max_unavailable,
            "Prefer Idle": spec.prefers_idle,
            "Debounce": _seconds(spec.debounce_s),
            "Apply Timeout": _seconds(spec.apply_timeout_s),
            "Drain Timeout": _seconds(spec.drain_timeout_s),
            "Drain Retry": _seconds(drain_retry_s(spec.drain_timeout_s, spec.drain_retry_s)),
        },
        "Reboot": {"Strategy": spec.reboot_strategy, "Min Interval": _seconds(spec.reboot_min_interval_s)},
        "Revision History Limit": spec.history_limit or "unlimited",
    }


def _seconds(amount: int) -> str:
    return f"{amount}s"
