"""`dcgm-diag`: DCGM's diagnostic of the container's cards, which a host engine carries out for us.

The host engine numbers the cards of its node in its own way; `dcgmi discovery` says how. Where there is none, or it is
one of another node, the check is not carried out, and says so.
"""

from typing import Final

from gpuledger.api.preflight import Variable
from gpuledger.domain.preflight import dcgm_diag
from gpuledger.domain.preflight.dcgm_discovery import indices
from gpuledger.domain.preflight.errors import DcgmError
from gpuledger.domain.preflight.findings import Finding, of_diagnosis
from gpuledger.events.recommended_action import NO_ACTION
from gpuledger.preflight.cards import VisibleCards, visible_cards
from gpuledger.preflight.conclusion import CheckConclusion, failed, judged, skipped
from gpuledger.preflight.errors import NotRunError
from gpuledger.preflight.settings import CheckSettings
from gpuledger.preflight.surroundings import Deadline, Surroundings

DISCOVERY_MAX_S: Final = 60.0
TIMEOUT_CODE: Final = "DCGM_DIAG_TIMEOUT"


async def dcgm_diag_check(settings: CheckSettings, here: Surroundings) -> CheckConclusion:
    """Run the diagnostic on the container's cards; see `PreflightError` for why it may not be."""
    engine = settings.diag.hostengine
    if not engine:
        raise NotRunError(f"No host engine is named; set {Variable.HOSTENGINE} to the HOST:PORT of DCGM's.")
    deadline = Deadline(settings.check_timeout_s, here.monotonic)
    cards = await visible_cards(here, deadline)
    if isinstance(cards, CheckConclusion):
        return cards
    if cards.instances:
        return skipped(
            "The cards are divided by MIG; DCGM's diagnostic would disturb whoever has their other instances."
        )
    numbers = await _numbers(engine, cards, here, deadline)
    command = (
        "dcgmi",
        "diag",
        "-r",
        str(settings.diag.level),
        "--host",
        engine,
        "-j",
        "-i",
        ",".join(map(str, numbers.values())),
    )
    output = await here.run(command, deadline.left_s, here.environ)
    if output.code is None:
        return failed(_timeout(settings.check_timeout_s), cards.uuids)
    try:
        diagnosis = dcgm_diag.parse(output.all)
    except DcgmError as error:
        raise NotRunError(f"The host engine at {engine} ran no diagnostic: {error}.") from error
    return judged(of_diagnosis(diagnosis, {number: uuid for uuid, number in numbers.items()}), cards.uuids)


async def _numbers(engine: str, cards: VisibleCards, here: Surroundings, deadline: Deadline) -> dict[str, int]:
    """The host engine's numbers of the cards, by UUID."""
    command = ("dcgmi", "discovery", "-l", "--host", engine)
    output = await here.run(command, min(DISCOVERY_MAX_S, deadline.left_s), here.environ)
    if output.code is None:
        raise NotRunError(f"The host engine at {engine} did not answer in {DISCOVERY_MAX_S:g} s.")
    try:
        found = indices(output.all)
    except DcgmError as error:
        raise NotRunError(
            f"The host engine at {engine} cannot be used: {error}. Run one on every GPU node, such as the chart's."
        ) from error
    missing = [uuid for uuid in cards.uuids if uuid not in found]
    if missing:
        raise NotRunError(
            f"The host engine at {engine} does not have {', '.join(missing)}; is it one of another node? Its Service "
            "needs internalTrafficPolicy: Local."
        )
    return {uuid: found[uuid] for uuid in cards.uuids}


def _timeout(timeout_s: float) -> Finding:
    message = f"DCGM's diagnostic did not end in {timeout_s:g} s; set {Variable.CHECK_TIMEOUT} higher for its level."
    return Finding(TIMEOUT_CODE, False, NO_ACTION, message)
