"""`bandwidth`: how fast each card copies memory from the host, within itself and to other cards; needs only PyTorch."""

from typing import Any, Final

import structlog

from gpuledger.domain.preflight.findings import Finding
from gpuledger.events.recommended_action import CONTACT_SUPPORT, NO_ACTION
from gpuledger.preflight.cards import cards_if_any
from gpuledger.preflight.conclusion import CheckConclusion, failed, skipped
from gpuledger.preflight.settings import CheckSettings
from gpuledger.preflight.surroundings import Deadline, Surroundings
from gpuledger.preflight.workers import NO_TORCH, has_torch, module_command, results_in

WORKER: Final = "gpuledger.preflight.bandwidth_worker"
LOW: Final = "BANDWIDTH_LOW"
TIMEOUT: Final = "BANDWIDTH_TIMEOUT"
FAILED: Final = "BANDWIDTH_FAILED"
_ORDER: Final = {"CUDA_DEVICE_ORDER": "PCI_BUS_ID"}
"""CUDA numbers cards as nvidia-smi lists them."""

_log = structlog.get_logger()


async def bandwidth_check(settings: CheckSettings, here: Surroundings) -> CheckConclusion:
    """Measure how fast the cards copy memory."""
    if not has_torch():
        return skipped(NO_TORCH)
    deadline = Deadline(settings.check_timeout_s, here.monotonic)
    cards = await cards_if_any(here, deadline)
    if isinstance(cards, CheckConclusion):
        return cards
    output = await here.run(module_command(WORKER), deadline.left_s, {**here.environ, **_ORDER})
    if output.code is None:
        finding = Finding(TIMEOUT, False, NO_ACTION, f"The copies did not end in {settings.check_timeout_s:g} s.")
        return failed(finding, cards.uuids)
    found = results_in(output.text)
    if output.code or not found:
        finding = Finding(
            FAILED, False, NO_ACTION, f"The copies failed with {output.code}: {output.all.strip()[-500:]}"
        )
        return failed(finding, cards.uuids)
    for measure in found[-1]["measures"]:
        _log.info("measured", **measure)
    return conclude(found[-1], settings.thresholds.bandwidth_gbps, cards.uuids)


def conclude(found: dict[str, Any], threshold_gbps: float, uuids: tuple[str, ...]) -> CheckConclusion:
    """The conclusion from what the worker measured; every copy of a card has to reach the threshold."""
    measures = found["measures"]
    slowest = min(measures, key=lambda one: one["gbps"])
    words = f"the slowest copy, {slowest['kind']}, has {slowest['gbps']:.2f} GB/s"
    if found["device"] == "cpu":
        return skipped(f"No GPU was measured, only the host's memory: {words}.")
    cards = tuple(dict.fromkeys(_uuid(one, uuids) or "" for one in measures))
    findings = tuple(_low(one, threshold_gbps, uuids) for one in measures if one["gbps"] < threshold_gbps)
    return CheckConclusion(
        "failed" if findings else "passed",
        f"{words}; the threshold is {threshold_gbps:g} GB/s",
        tuple(filter(None, cards)) or uuids,
        findings,
        bandwidth_gbps=slowest["gbps"],
        threshold_gbps=threshold_gbps,
    )


def _low(measure: dict[str, Any], threshold_gbps: float, uuids: tuple[str, ...]) -> Finding:
    words = f"{measure['kind']} has {measure['gbps']:.2f} GB/s, below {threshold_gbps:g} GB/s"
    return Finding(LOW, False, CONTACT_SUPPORT, words, _uuid(measure, uuids))


def _uuid(measure: dict[str, Any], uuids: tuple[str, ...]) -> str | None:
    """The card of a measure: as PyTorch names it, else by its number in nvidia-smi's list."""
    card = measure["card"]
    by_number = uuids[card] if card is not None and card < len(uuids) else None
    return measure["uuid"] if measure["uuid"] in uuids or not uuids else by_number
