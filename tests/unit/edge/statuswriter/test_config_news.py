"""Which Kubernetes Events a rollout of machine configuration leads to, on Nodes and on MachineConfigPools."""

from typing import Any

import pytest

from gpuledger.edge.statuswriter.objects import Key, Kind
from gpuledger.events.machine_config import (
    ConfigChange,
    MachineConfigPoolGone,
    NodeConfigChanged,
    NodeConfigDrainFailed,
    NodeConfigReported,
)
from support.config_decisions import NODE, POOL, RENDERED, UID, changed, config_state, configured, defined
from support.events import SubjectFact

POOL_KEY, NODE_KEY = Key(Kind.CONFIG_POOL, POOL), Key(Kind.KUBE_NODE, NODE)
TARGET = RENDERED.name
DEFINED: SubjectFact = (POOL, defined())
UPDATING = changed(("Updating", "True", "NodesPending"), updated_count=1, max_unavailable=2)
UPDATED = changed(("Updating", "False", "AllUpdated"), updated_count=3)


def last(*facts: SubjectFact) -> list[tuple[Key, str, bool, str]]:
    """What the last fact is announced as: object, reason, whether it warns, note."""
    before = len(config_state(*facts[:-1]).take_occurrences())
    found = config_state(*facts).take_occurrences()[before:]
    return [(one.key, str(one.reason), one.is_warning, one.note) for one in found]


def node(*decided: NodeConfigChanged) -> list[SubjectFact]:
    return [DEFINED, (POOL, UPDATING), *((NODE, one) for one in decided)]


DRAINING = configured("Draining", "rendered-worker-0")
APPLYING, IDLE = configured(), configured("Idle")
ERROR = NodeConfigReported(
    state="error", revision=TARGET, error="disk full.", change_count=7,
    changes=(
        ConfigChange(subject="/etc/a", action="write", outcome="changed"),
        *(ConfigChange(subject=f"/etc/{number}", action="write", outcome="not-applied") for number in range(6)),
    ),
)  # fmt: skip
TIMED_OUT = configured("Failed", reason="ApplyTimeout", message="It took 600s.")
BROKEN = configured("Failed", reason="AgentError", message="disk full")


@pytest.mark.parametrize(
    ("decided", "expected"),
    [
        ([DRAINING], ("UpdateStarted", False, f"Its pods leave, then it applies {TARGET} of pool worker.")),
        ([APPLYING], ("UpdateStarted", False, f"It applies {TARGET} of pool worker.")),
        ([DRAINING, APPLYING], None),
        ([DRAINING, IDLE], None),
        ([APPLYING, IDLE], ("UpdateApplied", False, f"The node has {TARGET} of pool worker.")),
        ([APPLYING, BROKEN, IDLE], ("UpdateApplied", False, f"The node has {TARGET} of pool worker.")),
        ([IDLE], None),
        ([APPLYING, NodeConfigChanged(uid=UID)], None),
        ([APPLYING, configured("Idle", uid="u2")], None),
        ([APPLYING, configured("Idle", pool="other")], None),
        ([APPLYING, configured("Idle", "rendered-worker-0")], None),
    ],
)
def test_the_update_of_a_node(decided: list[NodeConfigChanged], expected: tuple[str, bool, str] | None) -> None:
    assert last(*node(*decided)) == ([] if expected is None else [(NODE_KEY, *expected)])


@pytest.mark.parametrize(
    ("failed", "reason", "why"),
    [(TIMED_OUT, "ApplyTimeout", "It took 600s."), (BROKEN, "ApplyFailed", "disk full")],
)
def test_a_failure_is_on_the_node_and_on_its_pool(failed: NodeConfigChanged, reason: str, why: str) -> None:
    note = f"{TARGET} is not applied: {why}"
    assert last(*node(APPLYING, failed)) == [
        (NODE_KEY, reason, True, note),
        (POOL_KEY, reason, True, f"Node w1: {note}"),
    ]


def test_what_the_agent_reported_itself_is_on_the_node_once() -> None:
    shown = ", ".join(f"/etc/{number} (write: not-applied)" for number in range(5))
    note = f"{TARGET} is not applied: disk full. Not applied: {shown} and 1 more."
    assert last(*node(APPLYING), (NODE, ERROR)) == [(NODE_KEY, "ApplyFailed", True, note)]
    assert [found[:2] for found in last(*node(APPLYING), (NODE, ERROR), (NODE, BROKEN))] == [(POOL_KEY, "ApplyFailed")]
    done = (NODE, NodeConfigReported(state="applying"))
    assert len(last(*node(APPLYING), (NODE, ERROR), done, (NODE, BROKEN))) == 2


def test_a_reboot_is_announced_once() -> None:
    reboots = NodeConfigReported(state="rebooting", revision=TARGET)
    assert last(*node(APPLYING), (NODE, reboots)) == [
        (NODE_KEY, "RebootStarted", False, f"The node reboots for {TARGET}.")
    ]
    assert last(*node(APPLYING), (NODE, reboots), (NODE, reboots)) == []


@pytest.mark.parametrize(
    ("drain", "reason", "pods"),
    [({"left": 1}, "DrainFailed", "1 pod is left"), ({"left": 4, "is_stuck": True}, "DrainStuck", "4 pods are left")],
)
def test_a_drain_that_does_not_end(drain: dict[str, Any], reason: str, pods: str) -> None:
    failed = NodeConfigDrainFailed(pool=POOL, attempt=3, message="A budget blocks it.", **drain)
    note = f"The node is not drained after attempt 3: {pods}; the drain goes on. A budget blocks it."
    assert last(*node(DRAINING), (NODE, failed)) == [
        (NODE_KEY, reason, True, note),
        (POOL_KEY, reason, True, f"Node w1: {note}"),
    ]


@pytest.mark.parametrize(
    ("states", "expected"),
    [
        ([UPDATING], [("UpdateStarted", False, f"2 of 3 nodes are updated to {TARGET}, at most 2 at a time.")]),
        ([UPDATING, UPDATING], []),
        ([UPDATED], []),
        ([UPDATING, UPDATED], [("UpdateApplied", False, f"All 3 nodes have {TARGET}.")]),
        ([UPDATING, changed(("Updating", "False", "Paused"), updated_count=2)], []),
        ([changed(("Degraded", "True", "RenderFailed"))], [("RenderFailed", True, "It cannot be rendered.")]),
        ([changed(("Degraded", "True", "RenderFailed"))] * 2, []),
        ([changed(("Degraded", "True", "NodesDegraded"))], []),
        (
            [changed(("Degraded", "True", "NodesDegraded")), changed(("Degraded", "True", "RenderFailed"))],
            [("RenderFailed", True, "It cannot be rendered.")],
        ),
        ([changed(("PoolOverlap", "True", "NodesShared"))], [("PoolOverlap", True, "Nodes are in other pools too.")]),
        ([changed(("DrainStuck", "True", "DrainStuck"))], []),
    ],
)
def test_the_rollout_of_a_pool(states: list[Any], expected: list[tuple[str, bool, str]]) -> None:
    assert last(DEFINED, *((POOL, one) for one in states)) == [(POOL_KEY, *one) for one in expected]


def test_a_pool_that_is_gone_has_no_news() -> None:
    assert last(DEFINED, (POOL, MachineConfigPoolGone(uid="p1")), (POOL, UPDATING)) == []
