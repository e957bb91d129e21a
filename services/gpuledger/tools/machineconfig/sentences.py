"""What events of machine configuration say, each in a sentence, as timelines show them. Pure."""

from typing import Any

from gpuledger.events.machine_config import (
    MachineConfigPoolChanged,
    MachineConfigPoolDefined,
    MachineConfigRendered,
    MachineConfigRenderedWithdrawn,
    MachineConfigWaitEnded,
    NodeConfigChanged,
    NodeConfigDrainFailed,
    NodeConfigReported,
    NodeMachineObserved,
)
from gpuledger.events.payload import Payload

LEFT_OUT = ("files", "units", "definition")
"""What of a payload is too long for a timeline: contents of files."""

_WAITS = {
    "Debounce": "no input has changed for long enough, so the pool is rendered",
    "DrainRetry": "the drain of {node} has not finished within another retry interval",
    "DrainTimeout": "the drain of {node} has not finished within the pool's time-out",
    "ApplyTimeout": "the agent of {node} has not applied what it is to have within the pool's time-out",
    "Release": "{node} was released a while ago, and nobody has given it back",
}


def sentence_of(data: Payload) -> str | None:
    """What an event says; None where it is about something else."""
    match data:
        case MachineConfigPoolDefined() | MachineConfigPoolChanged() | MachineConfigWaitEnded():
            return _of_pool(data)
        case MachineConfigRendered():
            sources = ", ".join(one.name for one in data.sources) or "nothing"
            return f"{data.name} is rendered from {sources}: {len(data.files)} files, {len(data.units)} units"
        case MachineConfigRenderedWithdrawn():
            return f"{data.name} goes: nothing has it or is to have it"
    return _of_node(data)


def _of_node(data: Payload) -> str | None:
    match data:
        case NodeConfigChanged():
            return _of_change(data)
        case NodeConfigDrainFailed():
            stuck = ", longer than the pool's time-out" if data.is_stuck else ""
            left = f"attempt {data.attempt}, {data.left} pods left"
            return f"the drain has not finished, {left}{stuck}{_colon(data.message)}"
        case NodeConfigReported():
            return _of_report(data)
        case NodeMachineObserved():
            return _of_machine(data)
    return None


def _of_pool(data: MachineConfigPoolDefined | MachineConfigPoolChanged | MachineConfigWaitEnded) -> str:
    match data:
        case MachineConfigPoolDefined():
            parts = [f"at most {data.max_unavailable} at a time"]
            parts += ["paused"] if data.paused else []
            parts += [f"pinned to {data.pinned_revision}"] if data.pinned_revision else []
            parts += [f"refused: {'; '.join(data.problems)}"] if data.problems else []
            return f"is defined: {', '.join(parts)}"
        case MachineConfigPoolChanged():
            counts = f"{data.updated_count} of {data.machine_count} nodes have {data.target_revision or 'nothing'}"
            true = [one.type for one in data.conditions if one.status == "True"]
            return f"{counts}, {data.unavailable} unavailable; {', '.join(true) or 'no condition holds'}"
        case MachineConfigWaitEnded():
            return _WAITS[data.wait].format(node=data.node)


def _of_change(data: NodeConfigChanged) -> str:
    if data.pool is None:
        return "belongs to no pool any more, and is given back"
    match data.phase:
        case "Draining":
            text = f"is set aside and drained for pool {data.pool}"
        case "Applying":
            text = f"is to have {data.desired_revision}{'' if data.cordoned else ', without a drain'}"
        case "Failed":
            text = f"does not get to {data.desired_revision}"
        case "Idle":
            text = (
                f"is given back, to have {data.desired_revision}"
                if data.desired_revision
                else f"is of pool {data.pool}"
            )
    return f"{text}{_colon(': '.join(filter(None, (data.reason, data.message))))}"


def _of_report(data: NodeConfigReported) -> str:
    about = f" {data.revision}" if data.revision else ""
    failed = [one.subject for one in data.changes if one.outcome == "failed"]
    parts = [f"the agent is {data.state}{about}"]
    parts += [f"{data.change_count} changes"] if data.change_count else []
    parts += [f"failed: {', '.join(failed)}"] if failed else []
    parts += ["a reboot is pending"] if data.reboot_pending else []
    return f"{', '.join(parts)}{_colon(data.error)}"


def _of_machine(data: NodeMachineObserved) -> str:
    parts = [f"the Node has {data.current_revision or 'no configuration'}"]
    parts += [f"its agent is {data.agent_state}"] if data.agent_state else []
    parts += ["cordoned"] if data.unschedulable else []
    parts += ["a reboot is pending"] if data.reboot_pending else []
    return f"{', '.join(parts)}{_colon(data.last_error)}"


def _colon(text: str) -> str:
    return f": {text}" if text else ""


def with_sentence(data: Payload, detail: dict[str, Any]) -> dict[str, Any]:
    """An event's data as a timeline has it: behind its sentence, where there is one, and without contents of files."""
    sentence = sentence_of(data)
    if sentence is None:
        return detail
    return {"summary": sentence, **{key: value for key, value in detail.items() if key not in LEFT_OUT}}
