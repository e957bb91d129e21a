"""The phase that a node's facts give, and by which phases it gets there. Pure."""

from gpuledger.api.phases import PreparationPhase
from gpuledger.deciders.bootstrap.checks import Checks, Standing, was_fine
from gpuledger.deciders.bootstrap.node_facts import NodeView


def phase_of(view: NodeView, checks: Checks) -> PreparationPhase:
    """The phase of the first part that is not as it should be; what fails or was lost fails the node."""
    if not view.row.managed:
        return PreparationPhase.DISABLED
    parts = (
        (checks.validator, PreparationPhase.VALIDATING),
        (checks.gfd, PreparationPhase.GFD),
        (checks.monitoring, PreparationPhase.MONITORING),
    )
    for check, phase in parts:
        if check.standing is not Standing.FINE:
            is_failed = check.standing is Standing.FAILING or was_fine(view)
            return PreparationPhase.VALIDATING_FAILED if is_failed else phase
    return PreparationPhase.READY


def way_to(wanted: PreparationPhase, known: PreparationPhase | None, *, has_new_device: bool) -> list[PreparationPhase]:
    """The phases to go through, the wanted one last.

    A preparation begins with Validating: the first one, one after a failure, and one for a new device.
    """
    if known is PreparationPhase.READY:
        begins = wanted is not PreparationPhase.VALIDATING_FAILED and (
            has_new_device or wanted is not PreparationPhase.READY
        )
    else:
        begins = wanted is not known and known in (None, PreparationPhase.DISABLED, PreparationPhase.VALIDATING_FAILED)
    is_there = wanted in (PreparationPhase.VALIDATING, PreparationPhase.DISABLED)
    return [PreparationPhase.VALIDATING, wanted] if begins and not is_there else [wanted]
