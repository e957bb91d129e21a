"""The cards of this container, as nvidia-smi sees them."""

from typing import Final, NamedTuple

from gpuledger.domain.preflight.errors import CardLostError, NvidiaSmiError
from gpuledger.domain.preflight.findings import of_lost_card
from gpuledger.domain.preflight.nvidia_smi import cards
from gpuledger.preflight.conclusion import CheckConclusion, failed
from gpuledger.preflight.errors import NotRunError
from gpuledger.preflight.machine import CheckMachine, Deadline

LIST: Final = ("nvidia-smi", "-L")
"""Lists MIG instances too, which a query of UUIDs does not."""

LIST_MAX_S: Final = 60.0
VISIBLE: Final = "NVIDIA_VISIBLE_DEVICES"
"""By which the device plugin names the container's devices."""

_UUIDS: Final = ("GPU-", "MIG-")


class VisibleCards(NamedTuple):
    """The cards by UUID, and how many MIG instances of them the container has; 0: it has whole cards."""

    uuids: tuple[str, ...]
    instances: int = 0

    @property
    def processes(self) -> int:
        """How many processes a program has that uses all of them; of MIG's instances CUDA shows one alone."""
        return 1 if self.instances else max(1, len(self.uuids))


async def visible_cards(here: CheckMachine, deadline: Deadline) -> VisibleCards | CheckConclusion:
    """The container's cards, or the result of a check that cannot reach one of them.

    Raises:
        NotRunError: nvidia-smi is missing, or sees none.
    """
    output = await here.run(LIST, min(LIST_MAX_S, deadline.left_s), here.environ)
    if output.code is None:
        raise NotRunError(f"nvidia-smi did not answer in {LIST_MAX_S:g} s; look at the node's driver.")
    try:
        found = cards(output.all)
    except CardLostError as error:
        return failed(of_lost_card(error), named_cards(here))
    except NvidiaSmiError as error:
        raise NotRunError(f"{error}. Look whether this container requests a GPU, and at the node's driver.") from error
    return VisibleCards(tuple(card.uuid for card in found), sum(len(card.parts) for card in found))


async def cards_if_any(here: CheckMachine, deadline: Deadline) -> VisibleCards | CheckConclusion:
    """The same, but none where nvidia-smi is missing or sees none."""
    try:
        return await visible_cards(here, deadline)
    except NotRunError:
        return VisibleCards(named_cards(here))


def named_cards(here: CheckMachine) -> tuple[str, ...]:
    """The cards that the container was given, where they are named by UUID."""
    names = here.environ.get(VISIBLE, "").split(",")
    return tuple(name.strip() for name in names if name.strip().startswith(_UUIDS))
