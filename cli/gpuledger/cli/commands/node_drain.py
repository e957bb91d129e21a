"""`gpuledger node drain`: cordons a node, has its pods leave, and waits for that."""

from pathlib import Path
from typing import Annotated, Literal

import typer

from gpuledger.cli.backend import open_backend
from gpuledger.cli.commands.node import For, Node, Owner, Reason, Text, app, bare, expires_after, owner_of, within
from gpuledger.cli.errors import CliError, ExitCode
from gpuledger.cli.options import DataDir
from gpuledger.cli.render import message
from gpuledger.cli.run import run
from gpuledger.cli.times import parse_time
from gpuledger.domain.maintenance.rows import FINISHED, TIMED_OUT
from gpuledger.edge.nodewriter.drain_plan import STAYING
from gpuledger.events.drain_mode import MODES
from gpuledger.events.maintenance import (
    DRAIN_TIMEOUT_DEFAULT_S,
    DRAIN_TIMEOUT_MAX_S,
    DRAINED_DEVICES_MAX,
    NAMESPACE_MODES_MAX,
    Drain,
    NamespaceMode,
    NodeMaintenanceRequested,
)
from gpuledger.events.payload import NAME_LENGTH_MAX, TEXT_LENGTH_MAX
from gpuledger.runtime.clock import system_clock
from gpuledger.tools import draining, maintenance

Mode = Annotated[
    Literal["Immediate", "DeleteAfterTimeout", "AllowCompletion"],
    typer.Option("--mode", help="Evict pods at once, after the time-out, or never: they end by themselves."),
]
NamespaceModes = Annotated[
    list[str] | None,
    typer.Option(
        "--namespace-mode",
        metavar="PATTERN=MODE",
        help="Another mode for the namespaces that match, such as team-*=Immediate.",
        show_default=False,
    ),
]
Devices = Annotated[
    list[str] | None,
    typer.Option(
        "--device",
        metavar="UUID",
        help="Only have pods leave that hold this card or MIG instance; may be given several times.",
        show_default=False,
    ),
]
Cordon = Annotated[bool, typer.Option("--cordon", help="With --device: keep new pods off the whole node as well.")]
Timeout = Annotated[
    str,
    typer.Option(
        "--timeout", metavar="DURATION", help="When pods of DeleteAfterTimeout are evicted, and others are late."
    ),
]
Wait = Annotated[bool, typer.Option("--wait/--no-wait", help="Wait until no pod is left that has to leave.")]


@app.command()
def drain(
    node: Node,
    reason: Reason,
    mode: Mode = "AllowCompletion",
    timeout: Timeout = f"{DRAIN_TIMEOUT_DEFAULT_S // 60}m",
    namespace_mode: NamespaceModes = None,
    device: Devices = None,
    cordon: Cordon = False,
    message_: Text = "",
    duration: For = None,
    owner: Owner = None,
    wait: Wait = True,
    data_dir: DataDir = None,
) -> None:
    """Cordon a node and have its pods leave, by evictions that respect disruption budgets.

    Replaces your previous request about the node. With --device the node is not cordoned, and only pods that hold the
    device leave. Pods of DaemonSets, and those of system namespaces, stay. `node uncordon` stops it at once. The exit
    code is 1 where pods are left when the time is over.
    """
    data = NodeMaintenanceRequested(
        owner=owner_of(owner),
        reason=within(reason, "--reason", NAME_LENGTH_MAX),
        message=within(message_, "--message", TEXT_LENGTH_MAX, 0),
        expires=expires_after(duration),
        cordon=cordon or not device,
        drain=Drain(
            mode=mode,
            namespaces=_namespace_modes(namespace_mode or []),
            timeout_s=_seconds(timeout),
            devices=_devices(device or []),
        ),
    )
    run(_drain(data_dir, bare(node), data, wait=wait))


async def _drain(data_dir: Path | None, node: str, data: NodeMaintenanceRequested, *, wait: bool) -> None:
    requested_at = system_clock()
    async with open_backend(data_dir, "node drain", records=True) as backend:
        devices = data.drain.devices if data.drain is not None else ()
        await draining.check_devices(backend, node, devices)
        recorded, is_there = await maintenance.request(backend, node, data)
        what = f"{', '.join(devices)} of node {node} is" if devices else f"Node {node} is"
        message(f"{what} to be drained for {data.owner}; recorded at {recorded}.")
        if not is_there:
            message(f"There is no node {node} yet; it will be drained once it is there.")
        elif wait:
            shown: dict[str, str] = {}
            wait_max_s = draining.wait_max_s(data)
            async for look in draining.follow(backend, node, data.owner, requested_at, wait_max_s):
                show(look, shown)
            _conclude(node, look, devices)
            return
    message(f"`gpuledger get maintenance {node}` shows what comes of it.")


def show(look: draining.Look, shown: dict[str, str]) -> None:
    """Print what changed: pods that are gone, and what others wait for."""
    if look.progress in (draining.UNREPORTED, draining.ENDED):
        return
    pods = dict(look.pods)
    for pod in [one for one in shown if one not in pods]:
        if shown.pop(pod) not in STAYING:  # A drain that has finished lists none, whether it has left or stays.
            message(f"pod {pod} has left")
    for pod, waits in pods.items():
        if shown.get(pod) != waits:
            message(f"pod {pod}: {waits}")
    shown.update(pods)


def _conclude(node: str, look: draining.Look, devices: tuple[str, ...]) -> None:
    if look.progress == FINISHED:
        message(f"No pod on node {node} holds {', '.join(devices)}." if devices else f"Node {node} is drained.")
        return
    hint = f"`gpuledger get maintenance {node} -o wide` shows them; `gpuledger node uncordon {node}` stops it"
    if look.progress == TIMED_OUT:
        raise CliError(f"{look.left} pods are left on node {node} after the time-out; the drain goes on", hint)
    raise CliError(f"Node {node} is not drained: {look.detail or look.progress}", "Ask for it again")


def _namespace_modes(texts: list[str]) -> tuple[NamespaceMode, ...]:
    if len(texts) > NAMESPACE_MODES_MAX:
        raise CliError(f"A drain has at most {NAMESPACE_MODES_MAX} --namespace-mode", "Give fewer", ExitCode.USAGE)
    return tuple(map(_namespace_mode, texts))


def _namespace_mode(text: str) -> NamespaceMode:
    pattern, equals, mode = text.partition("=")
    if not equals or mode not in MODES or not 0 < len(pattern) <= NAME_LENGTH_MAX:
        what = f"{text!r} is no mode of the form PATTERN=MODE"
        raise CliError(what, f"The mode is {', '.join(MODES)}; such as team-*=Immediate", ExitCode.USAGE)
    return NamespaceMode.model_validate({"namespaces": pattern, "mode": mode})


def _devices(uuids: list[str]) -> tuple[str, ...]:
    if len(uuids) > DRAINED_DEVICES_MAX:
        raise CliError(f"A drain has at most {DRAINED_DEVICES_MAX} --device", "Give fewer", ExitCode.USAGE)
    for uuid in uuids:
        if not draining.is_uuid(uuid) or len(uuid) > NAME_LENGTH_MAX:
            what = f"{uuid!r} is no UUID of a card or a MIG instance"
            raise CliError(what, "It is of the form GPU-... or MIG-..., as `nvidia-smi -L` prints it", ExitCode.USAGE)
    return tuple(dict.fromkeys(uuids))


def _seconds(text: str) -> int:
    now = system_clock()
    seconds = int((parse_time(f"+{text}", now) - now).total_seconds())
    if not 1 <= seconds <= DRAIN_TIMEOUT_MAX_S:
        what = f"--timeout is from 1s to {DRAIN_TIMEOUT_MAX_S // 86400}d, and not {text}"
        raise CliError(what, "Give another --timeout", ExitCode.USAGE)
    return seconds
