"""A pool's spec as a page shows it, by the fields of its manifest. Pure."""

from collections.abc import Iterable

from gpuledger.cli.render.page import Tree
from gpuledger.domain.pools.validation import unsupported
from gpuledger.events.pool import DeviceFilter, LabelSelector, PoolDefined, PoolTaint
from gpuledger.events.reach import NodeRequirement

EVERYTHING = "everything"


def spec_tree(said: PoolDefined) -> Tree:
    """The spec; parts that say nothing are left out."""
    problem = unsupported(said)
    return {
        "Provider": said.provider,
        "Backend": said.backend,
        "Not supported": None if problem is None else problem.message,
        "Resource": {
            "Unit": said.unit,
            "MIG Profile": said.mig_profile,
            "Slices Per Unit": said.slices_per_unit,
            "Max Devices Per Node": said.devices_per_node_max,
        },
        "Node Selector": _selector(said.node_selector),
        "Device Selector": _given({"Include": _filter(said.include), "Exclude": said.exclude and _filter(said.exclude)})
        or EVERYTHING,
        "Device Assignment": {
            "Require Annotation": said.requires_annotation,
            "Auto Approve Selector": None if said.auto_approve is None else _selector(said.auto_approve),
        },
        "Scheduling": {
            "Strategy": said.strategy or "as the module says",
            "Topology Key": said.topology_key,
            "Taints Enabled": said.taints_enabled,
            "Taints": [_taint(one) for one in said.taints] or None,
        },
        "Maintenance": said.maintenance,
    }


def _selector(selector: LabelSelector) -> str:
    """A selector on one line, as `kubectl get -l` takes it."""
    labels = (f"{key}={value}" for key, value in sorted(selector.labels.items()))
    return ", ".join((*labels, *_expressions(selector.requirements))) or EVERYTHING


def _expressions(requirements: Iterable[NodeRequirement]) -> Iterable[str]:
    for one in requirements:
        values = f" ({', '.join(one.values)})" if one.values else ""
        yield f"{one.key} {one.operator}{values}"


def _filter(given: DeviceFilter) -> Tree:
    return _given(
        {
            "Inventory IDs": ", ".join(given.inventory_ids),
            "Products": ", ".join(given.products),
            "PCI Vendors": ", ".join(given.pci_vendors),
            "PCI Devices": ", ".join(given.pci_devices),
            "MIG Capable": given.mig_capable,
            "MIG Profiles": ", ".join(given.mig_profiles),
        }
    )


def _given(fields: Tree) -> Tree:
    """What is given: neither absent nor empty; a `false` is."""
    return {name: value for name, value in fields.items() if value is False or value}


def _taint(taint: PoolTaint) -> str:
    return f"{taint.key}={taint.value}:{taint.effect}" if taint.value else f"{taint.key}:{taint.effect}"
