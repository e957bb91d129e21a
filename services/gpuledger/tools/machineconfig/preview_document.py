"""The document of `config diff`: what differs, and which nodes would change, in which order, holding what. Pure."""

from collections.abc import Mapping, Sequence
from typing import Any, Final

from gpuledger.tools.machineconfig.differences import differences
from gpuledger.tools.machineconfig.holders import HeldDevice
from gpuledger.tools.machineconfig.preview import NodeTurn, Preview

NOTHING: Final = "nothing would change"

Document = dict[str, Any]
Held = Mapping[str, Sequence[HeldDevice]]


def preview_document(found: Preview, held: Held) -> Document:
    """The document; `held` are the devices that pods hold, by node."""
    differing = differences(found.before, found.after)
    turns = [_turn(one, held.get(one.node, ())) for one in found.turns]
    return {
        "pool": found.pool,
        "was": found.before and found.before.name,
        "would": found.after.name,
        "files": [one._asdict() for one in differing.files],
        "units": [one._asdict() for one in differing.units],
        "reboot": differing.reboot,
        "nodes": turns,
        "machines": found.nodes,
        "atOnce": found.at_once,
        "rounds": max((one.round for one in found.turns), default=0),
        "prefersIdle": found.definition.prefers_idle,
        "notes": list(found.notes()),
        "differs": bool(differing) or bool(turns),
        "answer": _answer(found, turns),
    }


def _turn(turn: NodeTurn, held: Sequence[HeldDevice]) -> Document:
    return {
        "place": turn.place,
        "round": turn.round,
        "node": turn.node,
        "zone": turn.zone,
        "current": turn.current,
        "drain": not turn.why_not_drained,
        "whyNotDrained": turn.why_not_drained or None,
        "reboot": turn.reboots,
        "devices": len(held),
        "pods": sorted({pod for one in held for pod in one.pods}),
    }


def _answer(found: Preview, turns: Sequence[Document]) -> str:
    if not turns:
        return f"{found.after.name} would be rolled out to no node" if found.is_new else NOTHING
    busy = [one for one in turns if one["devices"]]
    devices = sum(one["devices"] for one in busy)
    parts = [f"{_counted(len(turns), 'node')} of {found.nodes} would change, {found.at_once} at a time"]
    if any(one["reboot"] for one in turns):
        parts.append("each reboots")
    parts.append(
        f"{_counted(len(busy), 'node')} {'holds' if len(busy) == 1 else 'hold'} {_counted(devices, 'device')}"
        if busy
        else "none holds devices"
    )
    return "; ".join(parts)


def _counted(number: int, noun: str) -> str:
    return f"{number} {noun}{'' if number == 1 else 's'}"
