"""What the answer of `what-if rollout` says: by which lengths, in which order, and what it assumes."""

from collections.abc import Mapping, Sequence
from typing import Any

import pytest

from gpuledger.events.machine_config import MachineConfigPoolDefined
from gpuledger.tools.machineconfig.holders import HeldDevice
from gpuledger.tools.machineconfig.preview import NodeTurn, Preview
from gpuledger.tools.whatif.rollout import Measured, Orders, answer_of
from gpuledger.tools.whatif.rollout_estimate import SAMPLES_MIN, PastLengths
from support.config_rollouts import NEW, OLD, POOL, rendered
from support.events import hour

UNMEASURED = Measured(None, 0, None, 0)
NOTHING = PastLengths([])
HELD = {"n1": [HeldDevice("n1", f"GPU-{number}", hour(0), ("ml/train",)) for number in range(8)]}
HOURLY = PastLengths([float(360 * number) for number in range(1, 10 * SAMPLES_MIN)])


def previewed(*nodes: str, reboots: bool = False) -> Preview:
    turns = [NodeTurn(at, at, node, None, OLD, "", reboots) for at, node in enumerate(nodes, 1)]
    pool = MachineConfigPoolDefined(uid="p")
    return Preview(POOL, pool, rendered(OLD), rendered(NEW), turns, 3, 1, [], [], [])


def answered(
    held: Mapping[str, Sequence[HeldDevice]] = HELD,
    measured: Measured = UNMEASURED,
    past: PastLengths = NOTHING,
    *,
    reboots: bool = False,
    prefers_idle: bool = False,
) -> dict[str, Any]:
    by_zone, idle = previewed("n1", "n2", "n3", reboots=reboots), previewed("n2", "n3", "n1", reboots=reboots)
    return answer_of(Orders(by_zone, idle, prefers_idle), held, measured, past, hour(5))


def test_without_measures_it_says_what_it_assumes() -> None:
    found = answered()
    assert found["lengths"] == {"drain_s": 300, "apply_s": 60, "reboot_s": 0}
    assert [text.partition(":")[0] for text in found["assumptions"][:2]] == [
        "A drain takes 300 s",
        "A node takes 60 s to apply",
    ]
    assert "stay held" in found["assumptions"][2]
    assert [row["hours"] for row in found["orders"]] == [0.3, 0.3]
    assert found["orders"][0]["disturbedGpuHours"] == pytest.approx(8 * 0.1)


def test_measures_of_the_ledger_come_before_assumptions() -> None:
    found = answered(measured=Measured(1800.0, 7, 600.0, 9))
    assert found["lengths"] == {"drain_s": 1800, "apply_s": 600, "reboot_s": 0}
    assert "the median of 7 that were measured" in found["assumptions"][0]
    assert answered(reboots=True)["lengths"]["reboot_s"] == 300


def test_idle_nodes_first_interrupt_less_where_allocations_end() -> None:
    found = answered(measured=Measured(1800.0, 7, 1800.0, 9), past=HOURLY)
    zone, idle = found["orders"]
    assert (zone["order"], idle["order"]) == ("by zone", "idle first")
    assert idle["devices"] < zone["devices"] == 8
    assert found["answer"].startswith(
        "3 of 3 nodes in 3.00 h, 1 at a time; 8.00 GPU-hours disturbed, 40.00 interrupted"
    )
    assert "idle first interrupts" in found["answer"]
    own = answered(measured=Measured(1800.0, 7, 1800.0, 9), past=HOURLY, prefers_idle=True)["answer"]
    assert own != found["answer"]


def test_where_nothing_would_change_it_says_so() -> None:
    nothing = previewed()
    found = answer_of(Orders(nothing, nothing, prefers_idle=False), {}, UNMEASURED, NOTHING, hour(5))
    assert (found["answer"], found["busyNodes"]) == ("no node would change", 0)
