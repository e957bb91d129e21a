"""`nccl-loopback`: an all-reduce of nccl-tests between the cards of this container, over NVLink or PCIe."""

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Final

import structlog

from gpuledger.api.preflight import Detail
from gpuledger.domain.preflight.findings import Judgement, Verdict, nccl_finding, of_nccl_tests
from gpuledger.domain.preflight.nccl_errors import NcclCode
from gpuledger.domain.preflight.nccl_tests import NcclRun, parse
from gpuledger.preflight.cards import VisibleCards, visible_cards
from gpuledger.preflight.conclusion import CheckConclusion, judged, skipped
from gpuledger.preflight.machine import CheckMachine, Deadline
from gpuledger.preflight.programs import ProgramOutput
from gpuledger.preflight.settings import NCCL_TOPOLOGY, CheckSettings, TopologySettings
from gpuledger.preflight.topology import choose_topology, needs_instance_type

PROGRAM: Final = "all_reduce_perf"
SIZES: Final = ("-b", "8", "-e", "256M", "-f", "2")
CARDS_MIN: Final = 2

_log = structlog.get_logger()


async def nccl_loopback_check(settings: CheckSettings, here: CheckMachine) -> CheckConclusion:
    """Measure the bus bandwidth between the cards; see `PreflightError` for why it may not be."""
    deadline = Deadline(settings.check_timeout_s, here.monotonic)
    cards = await visible_cards(here, deadline)
    if isinstance(cards, CheckConclusion):
        return cards
    if cards.instances:
        return skipped("The cards are divided by MIG, and a program reaches one instance alone.")
    if len(cards.uuids) < CARDS_MIN:
        return skipped("This container has one card, and no bus between cards to measure.")
    environ = await with_topology(settings.topology, here)
    output = await here.run((PROGRAM, *SIZES, "-g", str(len(cards.uuids))), deadline.left_s, environ)
    return _concluded(output, settings, cards, environ)


def _concluded(
    output: ProgramOutput, settings: CheckSettings, cards: VisibleCards, environ: Mapping[str, str]
) -> CheckConclusion:
    threshold_gbps = settings.thresholds.loopback_gbps
    run = parse(output.all)
    concluded = judged(_judgement(output, run, settings), cards.uuids)
    details = {Detail.TOPOLOGY: environ.get(NCCL_TOPOLOGY, "")}
    return replace(concluded, bandwidth_gbps=run.bandwidth_gbps, threshold_gbps=threshold_gbps, details=details)


def _judgement(output: ProgramOutput, run: NcclRun, settings: CheckSettings) -> Judgement:
    """What the run means; one that hangs, or fails and does not say why, is a failure as well."""
    has_ended = output.code == 0
    found = of_nccl_tests(run, settings.thresholds.loopback_gbps, has_ended=has_ended)
    if found.verdict is Verdict.FAILED or (has_ended and run.tables):
        return found
    if output.code is None:
        finding = nccl_finding(NcclCode.TIMEOUT, f"{PROGRAM} did not end in {settings.check_timeout_s:g} s")
    else:
        finding = nccl_finding(NcclCode.UNKNOWN, f"{PROGRAM} ended with {output.code}: {output.all.strip()[-500:]}")
    return Judgement(Verdict.FAILED, (finding,), finding.message)


async def with_topology(settings: TopologySettings, here: CheckMachine) -> dict[str, str]:
    """The environment for a program that uses NCCL, with the topology file that the settings choose."""
    instance_type = await here.instance_type() if needs_instance_type(settings) else None
    choice = choose_topology(settings, instance_type, Path.is_file)
    _log.info("the topology file of NCCL", file=choice.file, reason=choice.reason)
    environ = {name: value for name, value in here.environ.items() if name != NCCL_TOPOLOGY}
    return environ if choice.file is None else {**environ, NCCL_TOPOLOGY: choice.file}
