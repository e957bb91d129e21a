"""`nccl-allreduce`: all pods of a gang reduce a tensor together, over the network that their workload will use.

Each pod starts torchrun by itself; they meet at the master's address, and form one communicator. Nobody can tell which
node a low bandwidth is the fault of, so that one is no fatal finding, of any of them.
"""

from dataclasses import replace
from typing import Any, Final

import structlog

from gpuledger.api.preflight import Detail
from gpuledger.domain.preflight import torchrun
from gpuledger.domain.preflight.findings import Finding, nccl_finding
from gpuledger.domain.preflight.nccl_errors import NcclCode, classify
from gpuledger.events.recommended_action import NO_ACTION
from gpuledger.preflight.allreduce_command import TIMEOUT_S, launch_command, margin_s
from gpuledger.preflight.cards import VisibleCards, cards_if_any
from gpuledger.preflight.conclusion import CheckConclusion, failed, skipped
from gpuledger.preflight.errors import GangTimeoutError, NotRunError
from gpuledger.preflight.gang import CompleteGang
from gpuledger.preflight.gang_files import FormedGang, wait_for_gang
from gpuledger.preflight.loopback import with_topology
from gpuledger.preflight.machine import CheckMachine, Deadline
from gpuledger.preflight.programs import ProgramOutput
from gpuledger.preflight.settings import NCCL_TOPOLOGY, CheckSettings
from gpuledger.preflight.workers import NO_TORCH, has_torch, results_in

GANG_TIMEOUT_CODE: Final = "GANG_TIMEOUT"
PORT_TAKEN: Final = ("EADDRINUSE", "Address already in use")
EXCERPT_MAX: Final = 1000

_log = structlog.get_logger()


async def nccl_allreduce_check(settings: CheckSettings, here: CheckMachine) -> CheckConclusion:
    """Wait for the gang, and measure the bus bandwidth of all its cards; see `PreflightError` for why it may not be."""
    if not settings.gang.folder.is_dir():
        return skipped("This pod belongs to no gang, so that there is nobody to reduce with.")
    if not has_torch():
        return skipped(NO_TORCH)
    cards = await cards_if_any(here, Deadline(settings.check_timeout_s, here.monotonic))
    if isinstance(cards, CheckConclusion):
        return cards
    try:
        formed = await wait_for_gang(settings.gang, settings.pod, monotonic=here.monotonic, sleep=here.sleep)
    except GangTimeoutError as error:
        return _timed_out(error, cards)
    if len(formed.gang.members) == 1:
        return replace(skipped(_alone(formed.gang)), gang_wait_s=formed.waited_s)
    return await _reduce(settings, here, formed, cards)


def _alone(gang: CompleteGang) -> str:
    """Why a pod has nobody to reduce with."""
    if gang.passed:
        return (
            f"The other pods of the gang {gang.id} ({gang.passed}) have passed before this one came, and go through no "
            "checks any more, so that there is nobody to reduce with."
        )
    return f"The gang {gang.id} has one pod, so that there is nobody to reduce with."


async def _reduce(
    settings: CheckSettings, here: CheckMachine, formed: FormedGang, cards: VisibleCards
) -> CheckConclusion:
    deadline = Deadline(settings.check_timeout_s, here.monotonic)
    environ = await with_topology(settings.topology, here)
    environ[TIMEOUT_S] = str(margin_s(deadline.left_s))
    command = launch_command(formed.gang, settings.pod.name, cards.processes)
    output = await here.run(command, deadline.left_s, environ)
    concluded = _concluded(output, settings, cards)
    details = {**details_of(formed, settings.pod.name), Detail.TOPOLOGY: environ.get(NCCL_TOPOLOGY, "")}
    return replace(concluded, gang_wait_s=formed.waited_s, details=details)


def _timed_out(error: GangTimeoutError, cards: VisibleCards) -> CheckConclusion:
    finding = Finding(GANG_TIMEOUT_CODE, False, NO_ACTION, str(error))
    details = {Detail.GANG: error.gang}
    return CheckConclusion(
        "gang-timeout", str(error), cards.uuids, (finding,), gang_wait_s=error.waited_s, details=details
    )


def details_of(formed: FormedGang, pod: str) -> dict[Detail, str]:
    """What a report has of the gang."""
    gang = formed.gang
    return {
        Detail.GANG: gang.id,
        Detail.GANG_SIZE: str(len(gang.members)),
        Detail.RANK: str(gang.rank_of(pod)),
    }


def _concluded(output: ProgramOutput, settings: CheckSettings, cards: VisibleCards) -> CheckConclusion:
    found = results_in(output.text)
    if output.code == 0 and found:
        return conclude(found[0], settings.thresholds.allreduce_gbps, cards.uuids)
    finding = failure_of(output, settings.check_timeout_s)
    return replace(failed(finding, cards.uuids), threshold_gbps=settings.thresholds.allreduce_gbps)


def conclude(found: dict[str, Any], threshold_gbps: float, cards: tuple[str, ...]) -> CheckConclusion:
    """The conclusion from what a rank of this pod measured."""
    gbps = float(found["gbps"])
    words = f"{gbps:.2f} GB/s bus bandwidth of {found['ranks']} ranks over {found['backend']}"
    if found["wrong"]:
        finding = nccl_finding(NcclCode.WRONG_RESULT, f"{found['wrong']} values came out wrong; {words}")
    elif gbps < threshold_gbps:
        finding = nccl_finding(NcclCode.BANDWIDTH, f"{words}, threshold {threshold_gbps:g} GB/s")._replace(fatal=False)
    else:
        return CheckConclusion("passed", words, cards, bandwidth_gbps=gbps, threshold_gbps=threshold_gbps)
    return replace(failed(finding, cards), bandwidth_gbps=gbps, threshold_gbps=threshold_gbps)


def failure_of(output: ProgramOutput, timeout_s: float) -> Finding:
    """Why torchrun failed, as far as its output says.

    Raises:
        NotRunError: the master's port is taken, which blames no hardware.
    """
    text = output.all
    taken = next((line for line in text.splitlines() if any(word in line for word in PORT_TAKEN)), None)
    if taken is not None:
        raise NotRunError(
            f"The master's port is taken on this node: {taken.strip()[:EXCERPT_MAX]}. Pods in the network of their "
            "node share its ports; give gangs of such pods different ones."
        )
    failure = classify(text)
    if failure is not None:
        return nccl_finding(failure.code, failure.evidence)
    if output.code is None:
        return nccl_finding(NcclCode.TIMEOUT, f"The all-reduce did not end in {timeout_s:g} s.")
    return nccl_finding(NcclCode.UNKNOWN, _words(output))


def _words(output: ProgramOutput) -> str:
    """What torchrun says of the worker that failed first, else the end of its output."""
    first = torchrun.parse(output.all).earliest
    if first is None:
        return f"torchrun ended with {output.code}: {output.all.strip()[-EXCERPT_MAX:]}"
    return f"rank {first.rank} ended with {first.exit_code}: {first.message}"
