"""JSON in rows is the same text wherever it means the same: rows that are compared as texts compare by meaning."""

from typing import Any

import orjson
import pytest

from gpuledger.db.json_columns import JSON_COLUMNS
from gpuledger.events.claim import ClaimAllocated, ClaimRequested
from gpuledger.events.device import Card, DeviceMarked, Hardware
from gpuledger.events.health import NodeHealthReported
from gpuledger.events.machine_config import (
    MachineConfigDefined,
    MachineConfigPoolChanged,
    MachineConfigPoolDefined,
    MachineConfigRendered,
)
from gpuledger.events.maintenance import (
    Drain,
    Isolation,
    LeavingPod,
    NodeDrainChanged,
    NodeDrainProgressed,
    NodeMaintenanceRequested,
    OwnedDrain,
)
from gpuledger.events.node import NodeLabelled, WantedDevice
from gpuledger.events.node_sharing import Nic
from gpuledger.events.pool import PoolDefined
from gpuledger.events.position import number_of
from gpuledger.events.quarantine import QuarantineRulesApplied
from gpuledger.events.remediation import RemediationRulesApplied, TreatedFault
from gpuledger.events.rule import RuleEnforced
from gpuledger.events.runtime import NodeGpuCheckpointsObserved
from gpuledger.events.sharing import NodeDevicesShared
from gpuledger.events.slice import DeviceClassDefined, SlicePublished, TaintRuleSet
from gpuledger.ledger.api import Message
from gpuledger.projection.definition import Projection
from gpuledger.projection.replay import fold_until
from gpuledger.tools.queries.backend import all_projections
from support.dra_facts import allocated, availability_of, fact_at
from support.events import event, log_of, message
from support.fold_snapshots import CountingLedger, recorded_messages
from support.machine_configs import config_file, config_pool, machine_config
from support.maintenance import MaintenanceLog, observed, requested
from support.offering import labelled
from support.quarantine import OWNER, QuarantineLog, rules
from support.remediation import RemediationLog, fault
from support.rollout import RolloutLog
from support.sharing import lives

STORED = (
    QuarantineRulesApplied,
    *(RemediationRulesApplied, TreatedFault),
    *(SlicePublished, ClaimRequested, ClaimAllocated, DeviceClassDefined, TaintRuleSet),
    *(NodeDevicesShared, Card, Nic),
    *(MachineConfigDefined, MachineConfigPoolDefined, MachineConfigRendered, MachineConfigPoolChanged),
    *(NodeLabelled, DeviceMarked, Hardware, PoolDefined, WantedDevice, Isolation, Drain, OwnedDrain, LeavingPod),
)
"""What documents of rows are made of, whole or in part; beside them there are objects of texts, and of counts."""


AS_RECORDED = "indexed_event.event"
"""A whole event, in the bytes that its source wrote: a source, and no fold, decides how they are spelled."""


MAY_BE_EMPTY = {
    "device_allocation.consumed",
    "maintenance_request.drain",
    "node_fault.codes",
    "remediation_fault.codes",
    "remediation_fault.cleared",
    "sharing_hardware.declared",
}
"""Documents in columns of text, which are empty where nothing was recorded."""


def messages() -> list[Message]:
    """A recorded log, and behind it what no build had recorded by then: maintenance, quarantine, rollouts, shares."""
    recorded, maintenance = recorded_messages(), MaintenanceLog()
    maintenance.record("maintained", observed(), 0)
    maintenance.record("maintained", requested(drain={}), 1)
    (drain,) = (event for event in maintenance.log if isinstance(event.data, NodeDrainChanged))
    left = LeavingPod(namespace="team", pod="p", state="")
    maintenance.record("maintained", NodeDrainProgressed(intent=drain.id, left=1, pods=(left,)), 2)
    found = [*recorded, *maintenance.messages(number_of(recorded[-1].sequence))]
    quarantine = QuarantineLog("maintained", document=rules())
    found += quarantine.messages(number_of(found[-1].sequence))
    in_force = event(RuleEnforced(), NodeHealthReported.TYPE, source="/services/sources", event_id="in-force")
    found.append(message(in_force, number_of(found[-1].sequence) + 1))
    remediation = RemediationLog()
    remediation.record("n1", fault("0"), 10)
    remediation.set_aside("n1", 11)
    drained = NodeMaintenanceRequested(owner=OWNER, reason="Unhealthy", drain=Drain())
    remediation.record("n2", drained, 12)
    found += remediation.messages(number_of(found[-1].sequence))
    rollout = RolloutLog()
    rollout.record("worker", config_pool(debounce_s=0), 0)
    rollout.node("configured", 1)
    rollout.record("sysctl", machine_config(config_file()), 2)
    found += rollout.messages(number_of(found[-1].sequence))
    shares = [event(labelled(), "shares", source="/watchers/sharingnodes"), *lives(3, 9)]
    shares.insert(0, event(RuleEnforced(), NodeGpuCheckpointsObserved.TYPE, number=2, source="/services/sources"))
    return [*found, *log_of(shares, number_of(found[-1].sequence) + 1)]


async def documents(projection: Projection) -> list[tuple[str, str]]:
    """Each JSON object or list in the rows of a recorded log, with the table and column where it is."""
    found = []
    fold = await fold_until(projection, CountingLedger(messages()))
    for name, table in fold.state.tables().items():
        for row in table.rows.values():
            for column, value in zip(table.spec.columns, row, strict=True):
                place = f"{name}.{column}"
                if isinstance(value, str) and value[:1] in "{[" and document_of(value) is not None:
                    found += [(place, value)] if place != AS_RECORDED else []
    return found


def document_of(text: str) -> Any:
    """What a text means as JSON; None: it is none."""
    try:
        return orjson.loads(text)
    except orjson.JSONDecodeError:
        return None


def is_json(text: str) -> bool:
    """Whether a text is JSON, `null` among it."""
    return text == "null" or document_of(text) is not None


@pytest.mark.parametrize("projection", all_projections(), ids=lambda projection: projection.name)
async def test_it_is_sorted_by_key_and_has_no_spaces(projection: Projection) -> None:
    other = [
        (place, text)
        for place, text in await documents(projection)
        if orjson.dumps(document_of(text), option=orjson.OPT_SORT_KEYS).decode() != text
    ]
    assert other == []


async def test_these_columns_are_jsonb_but_for_those_that_are_empty_where_nothing_was_recorded() -> None:
    places = {place for projection in all_projections() for place, _ in await documents(projection)}
    declared = {f"{table}.{column}" for table, columns in JSON_COLUMNS.items() for column in columns}
    assert places - MAY_BE_EMPTY == declared


@pytest.mark.parametrize("projection", all_projections(), ids=lambda projection: projection.name)
async def test_every_row_has_a_document_in_them(projection: Projection) -> None:
    fold = await fold_until(projection, CountingLedger(messages()))
    for name, table in fold.state.tables().items():
        for column in JSON_COLUMNS.get(name, ()):
            place = table.spec.columns.index(column)
            assert [row for row in table.rows.values() if not is_json(row[place])] == []


def test_documents_have_no_numbers_with_fractions_and_nothing_of_any_kind() -> None:
    """jsonb would give some of these back as whole numbers; the times of hardware facts are far below."""
    assert {place for model in STORED for place in loose_places(model.model_json_schema())} == set()
    loose = {"properties": {"a": {"anyOf": [{"type": "number"}]}, "b": {}}}
    assert loose_places(loose) == ["/properties/b", "/properties/a/anyOf/0"]


def loose_places(schema: Any, path: str = "") -> list[str]:
    """Where a JSON schema allows a number with a fraction, or anything."""
    if isinstance(schema, list):
        return [found for at, one in enumerate(schema) for found in loose_places(one, f"{path}/{at}")]
    if not isinstance(schema, dict):
        return []
    here = [path] if schema.get("type") == "number" else []
    here += [f"{path}/properties/{name}" for name, one in (schema.get("properties") or {}).items() if not typed(one)]
    return here + [found for key, one in schema.items() for found in loose_places(one, f"{path}/{key}")]


def typed(schema: Any) -> bool:
    """Whether a part of a JSON schema says of which type it is."""
    return bool({"type", "anyOf", "oneOf", "allOf", "$ref", "enum", "const"} & set(schema))


def test_what_a_share_consumes_is_sorted_however_it_was_reported() -> None:
    amounts = [{"memory": "10", "cores": "2"}, {"cores": "2", "memory": "10"}]
    facts = [
        fact_at(number, f"ns/{number}", allocated(("n1", "m", "x"), consumed=one)) for number, one in enumerate(amounts)
    ]
    texts = [row.consumed for row in availability_of(facts).allocation.rows.values()]
    assert texts == ['{"cores":"2","memory":"10"}'] * 2
