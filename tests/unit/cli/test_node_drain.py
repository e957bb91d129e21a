"""What `gpuledger node drain` prints of the pods while they leave."""

import pytest

from gpuledger.cli.commands.node_drain import show
from gpuledger.domain.maintenance.rows import FINISHED
from gpuledger.edge.nodewriter.drain_plan import MAY_HOLD, OF_A_FILE, OF_DAEMON_SET, UNTIL_IT_ENDS, UNTOUCHED
from gpuledger.tools.draining import Look

DRAINING = "Draining"


@pytest.mark.parametrize("reason", [UNTOUCHED, OF_DAEMON_SET, OF_A_FILE, MAY_HOLD])
def test_a_pod_that_stays_is_not_reported_as_one_that_left(capsys: pytest.CaptureFixture[str], reason: str) -> None:
    shown: dict[str, str] = {}
    stays, leaves = ("kube-system/dns", reason), ("team/train", UNTIL_IT_ENDS)
    show(Look(DRAINING, 1, (leaves, stays), ""), shown)
    show(Look(FINISHED, 0, (), ""), shown)
    assert capsys.readouterr().err.splitlines() == [
        f"pod team/train: {UNTIL_IT_ENDS}",
        f"pod kube-system/dns: {reason}",
        "pod team/train has left",
    ]
    assert shown == {}
