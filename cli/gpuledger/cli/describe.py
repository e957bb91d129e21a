"""`gpuledger describe`: one page about a device or a node, from the ledger and, where it can be asked, Kubernetes.

The ledger's side is complete without an API server; the page says where Kubernetes could not be asked, and why.
"""

from collections.abc import Awaitable, Callable
from typing import Annotated, TypeVar

import typer

from gpuledger.cli.backend import backend, bring_current
from gpuledger.cli.describe_device import device_facts, device_objects, device_page
from gpuledger.cli.describe_node import node_facts, node_objects, node_page
from gpuledger.cli.describe_parts import found_or_none
from gpuledger.cli.errors import CliError, ExitCode
from gpuledger.cli.kube import Access, Answer, Context, Kubeconfig, if_reachable
from gpuledger.cli.nouns import DEVICES, NODES, noun_of
from gpuledger.cli.options import DataDir
from gpuledger.cli.page import Page
from gpuledger.cli.run import run
from gpuledger.cli.timeline import KINDS, NoKube
from gpuledger.kube.client import KubeClient, Object
from gpuledger.kube.names import GPU_DEVICES

T = TypeVar("T")

NOT_WANTED = "--no-kube leaves it out."

Kind = Annotated[
    str, typer.Argument(help="What it is: device or node.", autocompletion=lambda: list(KINDS), show_default=False)
]
Name = Annotated[
    str,
    typer.Argument(help="Serial number, UUID or GPUDevice; or the node's name.", show_default=False),
]


def describe(
    kind: Kind,
    name: Name,
    no_kube: NoKube = False,
    kubeconfig: Kubeconfig = None,
    context: Context = None,
    data_dir: DataDir = None,
) -> None:
    """Show what a device or node is, where it is, how it stands, and what happened to it, on one page."""
    noun = noun_of(kind)
    if noun not in (DEVICES, NODES):
        raise CliError(f"{noun.view.kinds.capitalize()} have no page", "Ask for a device or node", ExitCode.USAGE)
    access = None if no_kube else Access(kubeconfig, context, data_dir)
    page = run(_device(name, data_dir, access) if noun is DEVICES else _node(name, data_dir, access))
    if page is None:
        raise CliError(f"{noun.view.kind} {name!r} was not found", f"List them with `gpuledger get {noun.view.kinds}`")
    page.show()


async def _device(name: str, data_dir: DataDir, access: Access | None) -> Page | None:
    async with backend(data_dir, "describe") as place:
        await bring_current(place)
        facts = await device_facts(place, name)
        if facts is None:
            uuid = await _uuid_of(name, access)
            facts = await device_facts(place, uuid) if uuid else None
    if facts is None:
        return None
    found = facts
    return device_page(found, await _asked(access, lambda client: device_objects(client, found)))


async def _node(name: str, data_dir: DataDir, access: Access | None) -> Page | None:
    async with backend(data_dir, "describe") as place:
        await bring_current(place)
        facts = await node_facts(place, name)
    answer = await _asked(access, lambda client: node_objects(client, name))
    if not facts.is_known and not (answer.value and answer.value.is_known):
        return None
    return node_page(facts, answer)


async def _uuid_of(name: str, access: Access | None) -> str | None:
    """The UUID of a GPUDevice that Kubernetes has, and the ledger under another name."""
    answer: Answer[Object | None] = await _asked(access, lambda client: found_or_none(client, GPU_DEVICES, name))
    status = (answer.value or {}).get("status") or {}
    return (status.get("hardware") or {}).get("uuid")


async def _asked(access: Access | None, ask: Callable[[KubeClient], Awaitable[T]]) -> Answer[T]:
    return Answer(None, NOT_WANTED) if access is None else await if_reachable(access, ask)
