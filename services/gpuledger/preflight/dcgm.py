"""`dcgm-diag`: DCGM's diagnostic of the container's cards, which a host engine carries out for us.

The host engine numbers the cards of its node in its own way; `dcgmi discovery` says how. Where there is none, or it is
one of another node, the check is not carried out, and says so.
"""

from collections.abc import Sequence
from typing import Final

import structlog

from gpuledger.api.preflight import Variable
from gpuledger.domain.preflight import dcgm_diag
from gpuledger.domain.preflight.dcgm_discovery import indices
from gpuledger.domain.preflight.diagnosis import Diagnosis
from gpuledger.domain.preflight.errors import DcgmError, EngineBusyError
from gpuledger.domain.preflight.findings import Finding, of_diagnosis
from gpuledger.events.recommended_action import NO_ACTION
from gpuledger.preflight.cards import VisibleCards, visible_cards
from gpuledger.preflight.conclusion import CheckConclusion, failed, judged, skipped
from gpuledger.preflight.errors import NotRunError
from gpuledger.preflight.machine import CheckMachine, Deadline
from gpuledger.preflight.settings import CheckSettings

DISCOVERY_MAX_S: Final = 60.0
BUSY_PAUSE_S: Final = 5.0
"""How long an engine is left to another pod's diagnosis before it is asked again; it carries out one at a time."""

TIMEOUT_CODE: Final = "DCGM_DIAG_TIMEOUT"

_log = structlog.get_logger()


async def dcgm_diag_check(settings: CheckSettings, here: CheckMachine) -> CheckConclusion:
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
    diagnosis = await _diagnosis(command, settings, here)
    if diagnosis is None:
        return failed(_timeout(settings.check_timeout_s), cards.uuids)
    return judged(of_diagnosis(diagnosis, {number: uuid for uuid, number in numbers.items()}), cards.uuids)


async def _diagnosis(command: Sequence[str], settings: CheckSettings, here: CheckMachine) -> Diagnosis | None:
    """The diagnosis; None where it does not end in its time, which begins once no other pod's runs any more."""
    waiting = Deadline(settings.check_timeout_s, here.monotonic)
    while True:
        output = await here.run(command, settings.check_timeout_s, here.environ)
        if output.code is None:
            return None
        try:
            return dcgm_diag.parse(output.all)
        except EngineBusyError as error:
            if not waiting.left_s:
                raise _not_run(settings, error) from error
        except DcgmError as error:
            raise _not_run(settings, error) from error
        _log.info("the host engine runs another diagnosis", again_in_s=BUSY_PAUSE_S)
        await here.sleep(BUSY_PAUSE_S)


def _not_run(settings: CheckSettings, error: DcgmError) -> NotRunError:
    return NotRunError(f"The host engine at {settings.diag.hostengine} ran no diagnostic: {error}.")


async def _numbers(engine: str, cards: VisibleCards, here: CheckMachine, deadline: Deadline) -> dict[str, int]:
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
