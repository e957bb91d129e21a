"""The phase that a node's facts give, and by which phases it gets there. Pure."""

from gpuledger.api.bootstrap_names import Phase
from gpuledger.deciders.bootstrap.checks import Checks, Standing, was_fine
from gpuledger.deciders.bootstrap.node_facts import NodeView


def phase_of(view: NodeView, checks: Checks) -> Phase:
    """The phase of the first part that is not as it should be; what fails or was lost fails the node."""
    if not view.row.managed:
        return Phase.DISABLED
    parts = ((checks.validator, Phase.VALIDATING), (checks.gfd, Phase.GFD), (checks.monitoring, Phase.MONITORING))
    for check, phase in parts:
        if check.standing is not Standing.FINE:
            is_failed = check.standing is Standing.FAILING or was_fine(view)
            return Phase.VALIDATING_FAILED if is_failed else phase
    return Phase.READY


def way_to(wanted: Phase, known: Phase | None, *, has_new_device: bool) -> list[Phase]:
    """The phases to go through, the wanted one last.

    A preparation begins with Validating: the first one, one after a failure, and one for a new device.
    """
    if known is Phase.READY:
        begins = wanted is not Phase.VALIDATING_FAILED and (has_new_device or wanted is not Phase.READY)
    else:
        begins = wanted is not known and known in (None, Phase.DISABLED, Phase.VALIDATING_FAILED)
    is_there = wanted in (Phase.VALIDATING, Phase.DISABLED)
    return [Phase.VALIDATING, wanted] if begins and not is_there else [wanted]
