"""Which Kubernetes API server a command asks, and what it can tell besides the ledger.

A kubeconfig that is named wins over `KUBECONFIG`, that over the one that `gpuledger up` keeps in the data directory,
that over the pod's own account and `~/.kube/config`. Commands that need no API server go on without one, and say so.
"""

import asyncio
import os
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from datetime import datetime
from pathlib import Path
from typing import Annotated, Any, Final, Generic, NamedTuple, TypeVar

import typer

from gpuledger.api.kinds import Resource
from gpuledger.cli.times import format_time
from gpuledger.edge.kube.client import KubeClient, Object, Selection
from gpuledger.edge.kube.errors import KubeError
from gpuledger.edge.kube.kubeconfig import KUBECONFIG, load_configuration
from gpuledger.runtime.settings import read_settings

T = TypeVar("T")
Client = TypeVar("Client", bound=KubeClient)

OWN_KUBECONFIG: Final = "kubeconfig"
"""Where in the data directory `gpuledger up` says how to reach the API server that it serves."""

CORE_EVENTS: Final = Resource("", "v1", "events", "Event", namespaced=True)
"""Events as `kubectl describe` selects them; both forms of an event can be read here."""

ASKED_AT_ONCE: Final = 8
"""Requests to the API server that are under way together."""

Kubeconfig = Annotated[
    Path | None,
    typer.Option(
        "--kubeconfig", help=f"The cluster's kubeconfig (or ${KUBECONFIG}).", show_default="that of `gpuledger up`"
    ),
]
Context = Annotated[str | None, typer.Option("--context", help="The kubeconfig's context to use.")]


class Access(NamedTuple):
    """How the command line says that the API server is to be found."""

    kubeconfig: Path | None = None
    context: str | None = None
    data_dir: Path | None = None


class Answer(NamedTuple, Generic[T]):
    """What the API server told; `value` is None where it told nothing, and `problem` then says why."""

    value: T | None
    problem: str = ""


class KubeEvent(NamedTuple):
    """A Kubernetes Event; `time` is when it was last seen, `about` is `<kind>/<name>`."""

    time: datetime
    first_at: datetime
    times: int
    type: str
    reason: str
    about: str
    message: str
    reporter: str


def kubeconfig_of(access: Access, environ: Mapping[str, str] = os.environ) -> Path | None:
    """The file to use; None where the environment, the pod or the home directory decides."""
    if access.kubeconfig or access.context or environ.get(KUBECONFIG):
        return access.kubeconfig
    own = read_settings(environ, access.data_dir).data_dir / OWN_KUBECONFIG
    return own if own.is_file() else None


@asynccontextmanager
async def open_kube(access: Access, kind: type[Client]) -> AsyncIterator[Client]:
    """A client of that class for the cluster in force.

    Raises:
        KubeConfigError: there is no usable configuration.
    """
    client = kind(await load_configuration(kubeconfig_of(access), context=access.context))
    try:
        yield client
    finally:
        await client.close()


async def if_reachable(access: Access, ask: Callable[[KubeClient], Awaitable[T]]) -> Answer[T]:
    """What an API server answers, if there is one and it does."""
    try:
        async with open_kube(access, KubeClient) as client:
            return Answer(await ask(client))
    except KubeError as error:
        return Answer(None, str(error))


async def events_about(client: KubeClient, objects: Sequence[tuple[str, str]]) -> list[KubeEvent]:
    """The Events about objects, each a kind and a name, of all namespaces, by time."""
    gate = asyncio.Semaphore(ASKED_AT_ONCE)

    async def ask(kind: str, name: str) -> list[KubeEvent]:
        fields = f"involvedObject.kind={kind},involvedObject.name={name}"
        async with gate:
            return (await client.collect(CORE_EVENTS, event_of, Selection(fields=fields))).items

    found = await asyncio.gather(*(ask(kind, name) for kind, name in dict.fromkeys(objects)))
    return sorted((one for several in found for one in several), key=lambda event: (event.time, event.reason))


def event_of(obj: Object) -> KubeEvent:
    """The Event that an object of `v1` is. Its times are in one of several places, depending on who wrote it."""
    series, about = obj.get("series") or {}, obj.get("involvedObject") or {}
    created = obj["metadata"]["creationTimestamp"]
    first = obj.get("eventTime") or obj.get("firstTimestamp") or obj.get("lastTimestamp") or created
    last = series.get("lastObservedTime") or obj.get("lastTimestamp") or first
    return KubeEvent(
        time=parsed(last),
        first_at=parsed(first),
        times=int(series.get("count") or obj.get("count") or 1),
        type=str(obj.get("type") or ""),
        reason=str(obj.get("reason") or ""),
        about=f"{about.get('kind', '')}/{about.get('name', '')}",
        message=str(obj.get("message") or "").strip(),
        reporter=str(obj.get("reportingComponent") or (obj.get("source") or {}).get("component") or "unknown"),
    )


def event_row(event: KubeEvent) -> dict[str, object]:
    """An Event as a row of a timeline."""
    repeats = {"count": event.times, "first": format_time(event.first_at)} if event.times > 1 else {}
    return {
        "time": event.time,
        "event": event.reason,
        "about": event.about,
        "slot": None,
        "detail": {"type": event.type, "message": event.message, **repeats},
        "source": f"kubernetes/{event.reporter}",
        "position": None,
        "recorded_at": None,
        "event_id": None,
    }


def parsed(time: str) -> datetime:
    """A time as Kubernetes writes it."""
    return datetime.fromisoformat(time)


def without_managed_fields(obj: Object) -> Object:
    """An object without the record of who wrote which field, which kubectl does not show either."""
    metadata: dict[str, Any] = {key: value for key, value in obj["metadata"].items() if key != "managedFields"}
    return {**obj, "metadata": metadata}
