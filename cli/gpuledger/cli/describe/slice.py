"""What the page of a ResourceSlice says: what its driver publishes, how every device stands, and who has it."""

from collections.abc import Iterator, Mapping
from datetime import datetime
from typing import Any, NamedTuple

import orjson

from gpuledger.api.kinds import RESOURCE_SLICE_STATUSES, RESOURCE_SLICES
from gpuledger.cli.describe.sections import events_section
from gpuledger.cli.render.page import Page
from gpuledger.cli.render.tree import Tree, spelt, spelt_tree
from gpuledger.cli.times import format_time
from gpuledger.domain.dra import rows
from gpuledger.domain.dra.fold import Availability
from gpuledger.domain.dra.status import Document
from gpuledger.edge.kube.client import KubeClient, Object
from gpuledger.events.reach import NodeReach
from gpuledger.events.slice import SliceDevice, SlicePublished
from gpuledger.tools.cluster import KubeEvent, KubeReply, events_about, object_or_none
from gpuledger.tools.explain.access import Readable, elided, is_redacted
from gpuledger.tools.queries.availability import availability_as_of, current_availability
from gpuledger.tools.queries.backend import Backend

NOT_FOR_STATUS = (rows.CLAIM.name, rows.AVAILABILITY.name)
"""Tables that no status follows from."""


class SliceFacts(NamedTuple):
    """What the ledger knows of a slice, now or `at` a time; `is_redacted` where claims are named to nobody."""

    row: rows.ResourceSlice
    said: SlicePublished
    status: Document
    is_redacted: bool
    at: datetime | None = None


class SliceObjects(NamedTuple):
    """What Kubernetes knows of a slice."""

    status: Object | None
    events: list[KubeEvent]


async def slice_facts(backend: Backend, name: str, at: datetime | None) -> SliceFacts | None:
    """Everything that the ledger knows; None where it has no such slice."""
    if at is None:
        state = await current_availability(backend, without=NOT_FOR_STATUS)
    else:
        state = await availability_as_of(backend, at)
    redacted = await is_redacted(backend)
    status = state.status(name, redacted=redacted)
    if status is None:
        return None
    row = state.slice.rows[name]
    return SliceFacts(row, said_of(state, name), status, redacted, at)


async def slice_objects(client: KubeClient, name: str) -> SliceObjects:
    """The slice's ResourceSliceStatus, and the Events about both."""
    about = [(RESOURCE_SLICES.kind, name), (RESOURCE_SLICE_STATUSES.kind, name)]
    return SliceObjects(await object_or_none(client, RESOURCE_SLICE_STATUSES, name), await events_about(client, about))


def status_of(facts: SliceFacts, answer: KubeReply[SliceObjects]) -> tuple[str, Mapping[str, Any]]:
    """Whose status the page shows, and the status."""
    obj = answer.value.status if answer.value else None
    if obj is not None and obj.get("status"):
        return "Kubernetes", obj["status"]
    if facts.at is not None:
        return f"the ledger, at {format_time(facts.at)}", facts.status
    return "the ledger; Kubernetes has no such object" if answer.value else "the ledger", facts.status


def slice_page(facts: SliceFacts, answer: KubeReply[SliceObjects], readable: Readable) -> Page:
    """The page."""
    page = Page()
    origin, status = status_of(facts, answer)
    page.tree(
        {
            "Name": facts.row.name,
            "API Version": RESOURCE_SLICES.api_version,
            "Kind": RESOURCE_SLICES.kind,
            "UID": facts.row.uid,
            "Published": facts.row.published_at,
            "Status from": origin,
            "Claims named": readable.basis,
            "Spec": _spec(facts.said),
            "Status": status_tree(elided(status, readable.may_name)),
        }
    )
    if facts.at is None:
        events_section(page, answer.value.events if answer.value else None, answer.problem)
    return page


def said_of(state: Availability, name: str) -> SlicePublished:
    """What a slice that is there says."""
    return SlicePublished.model_validate(orjson.loads(state.slice.rows[name].payload))


def status_tree(status: Mapping[str, Any]) -> Tree:
    """A status as a page shows it; amounts keep the names that drivers give them."""
    found: dict[str, object] = {"Observed Generation": status.get("observedGeneration")}
    found["Summary"] = summary_tree(status.get("summary") or {})
    found["Devices"] = [_device_status(one) for one in status.get("devices") or ()]
    if pool := status.get("poolStatus"):
        found["Pool Status"] = spelt_tree(dict(pool))
    return found


def summary_tree(summary: Mapping[str, Any]) -> Tree:
    """A summary as a page shows it."""
    return {spelt(key): value for key, value in summary.items()}


def state_words(device: Mapping[str, Any]) -> str:
    """A device's state, its reason, and how many claims have it where they are not all named."""
    allocations = device.get("allocations") or ()
    words = " ".join(filter(None, (device.get("state"), device.get("stateReason") and f"({device['stateReason']})")))
    if all(one.get("claimName") for one in allocations):
        return words
    return f"{words} ({len(allocations)} claim{'' if len(allocations) == 1 else 's'})"


def attributes_tree(device: SliceDevice) -> Tree:
    """A device's attributes."""
    return {name: getattr(value, "version", value) for name, value in device.attributes.items()}


def _device_status(device: Mapping[str, Any]) -> Tree:
    named = [one for one in device.get("allocations") or () if one.get("claimName") or one.get("capacity")]
    return {
        "Name": device.get("name"),
        "State": state_words({**device, "stateReason": None}),
        "State Reason": device.get("stateReason"),
        "Allocations": [_allocation(one) for one in named] or None,
        "Capacity": device.get("capacity"),
        "Available Capacity": device.get("availableCapacity"),
    }


def _allocation(allocation: Mapping[str, Any]) -> Tree:
    known = {key: value for key, value in allocation.items() if value != ""}
    return {spelt(key): value for key, value in known.items()}


def _spec(said: SlicePublished) -> Tree:
    counters = [{"Name": one.name, "Counters": one.counters} for one in said.counter_sets]
    return {
        "Driver": said.driver,
        "Pool": {
            "Name": said.pool,
            "Generation": said.pool_generation,
            "Resource Slice Count": said.slice_count,
        },
        **_reach(said.reach),
        "Per Device Node Selection": True if said.reach is None else None,
        "Shared Counters": counters or None,
        "Devices": [_device(one) for one in said.devices],
    }


def _device(device: SliceDevice) -> Tree:
    taints = [
        f"{one.key}={one.value}:{one.effect}" if one.value else f"{one.key}:{one.effect}" for one in device.taints
    ]
    return {
        "Name": device.name,
        "Allow Multiple Allocations": True if device.shareable else None,
        "Attributes": attributes_tree(device) or None,
        "Capacity": {name: one.value for name, one in device.capacity.items()} or None,
        "Consumes Counters": device.consumes or None,
        "Taints": taints or None,
        **(_reach(device.reach) if device.reach else {}),
    }


def _reach(reach: NodeReach | None) -> Tree:
    if reach is None:
        return {}
    terms = list(_terms(reach))
    return {
        "Node Name": reach.node,
        "All Nodes": True if reach.all_nodes else None,
        "Node Selector": " or ".join(terms) or None,
    }


def _terms(reach: NodeReach) -> Iterator[str]:
    for term in reach.terms:
        yield " and ".join(f"{one.key} {one.operator} {','.join(one.values)}".rstrip() for one in term)
