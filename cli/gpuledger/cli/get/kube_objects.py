"""Kubernetes objects for `gpuledger get`: once, or with every change that comes.

Tables and CSV show what the API server lays out; the other formats show the objects themselves.
"""

from collections.abc import AsyncGenerator, Iterable, Iterator, Sequence
from contextlib import aclosing
from dataclasses import replace
from typing import Any, NamedTuple

from gpuledger.cli.errors import CliError
from gpuledger.cli.get.kube_tables import TableClient
from gpuledger.cli.get.noun import KubeNoun
from gpuledger.cli.render import Column, Output, View, message, render
from gpuledger.cli.render.rows import filled, steady
from gpuledger.edge.kube.client import KubeClient, Object, Selection
from gpuledger.edge.kube.errors import TransientError
from gpuledger.edge.kube.reflector import ChangeBatch, Changed, Interrupted, Listed, Reflector
from gpuledger.runtime.tasks import run_until_one_fails
from gpuledger.tools.cluster import KubeAccess, open_kube

AS_TABLE = frozenset({Output.TABLE, Output.WIDE, Output.CSV})
NAMESPACE = Column("Namespace", "Namespace")
NAME_KEY = "Name"

Identity = tuple[str, str]
"""Namespace and name."""


class ObjectQuery(NamedTuple):
    """Which objects, and where."""

    noun: KubeNoun
    selection: Selection
    names: tuple[str, ...]
    access: KubeAccess

    @property
    def nouns(self) -> tuple[KubeNoun, ...]:
        """The kinds to show; in one namespace only those that have namespaces."""
        beside = (one for one in self.noun.beside if one.resource.namespaced or self.selection.namespace is None)
        return (self.noun, *beside)


class _Found(NamedTuple):
    """Objects of one kind as rows, and how they are shown."""

    rows: list[dict[str, Any]]
    view: View
    names: frozenset[str]


async def get_objects(query: ObjectQuery, output: Output, *, headers: bool) -> None:
    """Show the objects.

    Raises:
        CliError: an object with a requested name does not exist.
    """
    async with open_kube(query.access, _client_class(output)) as client:
        found = [await _found(query._replace(noun=noun), client, output) for noun in query.nouns]
    if any(one.rows for one in found) or not query.names:
        for rows, view in _tables(found, output):
            render(rows, view, output, headers=headers)
    names = frozenset[str]().union(*(one.names for one in found))
    for name in query.names:
        if name not in names:
            kinds = " or ".join(noun.kind for noun in query.nouns)
            lists = " or ".join(f"`gpuledger get {noun.resource.plural}`" for noun in query.nouns)
            raise CliError(f"{kinds} {name!r} was not found", f"List them with {lists}")


async def _found(query: ObjectQuery, client: KubeClient, output: Output) -> _Found:
    """The objects of the one kind."""
    noun, objects = query.noun, list[Object]()
    for selection in [_named(query, name) for name in query.names] or [query.selection]:
        objects += (await client.list(noun.resource, selection)).items
    names = frozenset(name for _, name in map(_identity, objects))
    return _Found(list(_rows(objects, noun, client, output)), _view(noun, client), names)


def _tables(found: Sequence[_Found], output: Output) -> list[tuple[list[dict[str, Any]], View]]:
    """The tables to render: one in the first kind's columns, but names with their own kind."""
    if output is Output.NAME:
        return [(one.rows, one.view) for one in found if one.rows] or [(found[0].rows, found[0].view)]
    view = found[0].view
    return [(list(_padded((row for one in found for row in one.rows), view)), view)]


def _padded(rows: Iterable[dict[str, Any]], view: View) -> Iterator[dict[str, Any]]:
    """Rows with all columns of a table's view; objects without a namespace have none."""
    return ({column.field: None for column in view.columns} | row for row in rows)


async def watch_objects(query: ObjectQuery, output: Output, *, headers: bool) -> None:
    """Show the objects, then every one that changes, until the command is interrupted.

    Raises:
        KubeError: the API server refuses, or the first request fails.
    """
    screen = _Screen(query.nouns, output, headers)
    async with open_kube(query.access, _client_class(output)) as client:
        await run_until_one_fails(_watch(query._replace(noun=one), client, screen) for one in query.nouns)


class _Screen:
    """Where the rows of a watch go: in the first kind's columns, below one line of headings.

    Nothing is shown before every kind was listed once, so that the columns are as wide as the rows of all need.
    """

    def __init__(self, nouns: Sequence[KubeNoun], output: Output, headers: bool) -> None:
        self._kinds = [noun.kind for noun in nouns]
        self._unlisted = set(self._kinds)
        self._waiting: list[_Found] = []
        self._output = output
        self._headers = headers
        self._plain: View | None = None
        self._steady: View | None = None

    def show(self, objects: list[Object], noun: KubeNoun, client: KubeClient) -> None:
        """Show objects of a kind; what comes first for each kind is its list, which may be empty."""
        rows = list(_rows(objects, noun, client, self._output))
        self._waiting.append(_Found(rows, _view(noun, client), frozenset()))
        self._unlisted.discard(noun.kind)
        if self._unlisted:
            return
        found, self._waiting = sorted(self._waiting, key=lambda one: self._kinds.index(one.view.kind)), []
        self._plain = self._plain or found[0].view
        self._steady = self._steady or steady(self._plain)
        for table, view in _tables(found, self._output):
            self._render(table, view.kind, self._plain, self._steady)

    def _render(self, found: list[dict[str, Any]], kind: str, plain: View, shown: View) -> None:
        if found:
            rows = filled(_padded(found, plain), plain, self._output)
            render(rows, replace(shown, kind=kind), self._output, headers=self._headers, live=True)
            self._headers = False


async def _watch(query: ObjectQuery, client: KubeClient, screen: _Screen) -> None:
    async with aclosing(_changing(query, client)) as changing:
        async for objects in changing:
            screen.show(objects, query.noun, client)


async def _changing(query: ObjectQuery, client: KubeClient) -> AsyncGenerator[list[Object]]:
    """First all objects, even if there are none, then those that changed."""
    selection = _named(query, query.names[0]) if len(query.names) == 1 else query.selection
    seen = _SeenObjects(query)
    reflector: Reflector[Object] = Reflector(client, query.noun.resource, dict, selection=selection)
    async with aclosing(reflector.run()) as run:
        async for one in run:
            match one:
                case Listed(objects):
                    yield seen.listed(objects)
                case ChangeBatch(changes):
                    yield seen.changed(changes)
                case Interrupted(error, pause_s):
                    if not seen.begun or not isinstance(error, TransientError):
                        raise error
                    message(f"{error} Trying again in {pause_s:.0f} s.")


class _SeenObjects:
    """The versions that have been shown, so that a new list shows differences only."""

    def __init__(self, query: ObjectQuery) -> None:
        self._noun = query.noun
        self._names = frozenset(query.names)
        self._versions: dict[Identity, str] = {}
        self.begun = False

    def listed(self, objects: Iterable[Object]) -> list[Object]:
        """The objects of a list that are new or have changed."""
        self.begun = True
        selected = list(self._selected(objects))
        for identity in self._versions.keys() - set(map(_identity, selected)):
            self._gone(identity)
        return [obj for obj in selected if self._is_new(obj)]

    def changed(self, changes: Iterable[Changed[Object]]) -> list[Object]:
        """The objects that were added or changed."""
        fresh = []
        for change in changes:
            for obj in self._selected([change.object]):
                if change.type == "DELETED":
                    self._gone(_identity(obj))
                elif self._is_new(obj):
                    fresh.append(obj)
        return fresh

    def _selected(self, objects: Iterable[Object]) -> Iterator[Object]:
        return (obj for obj in objects if not self._names or obj["metadata"]["name"] in self._names)

    def _is_new(self, obj: Object) -> bool:
        identity, version = _identity(obj), str(obj["metadata"]["resourceVersion"])
        before, self._versions[identity] = self._versions.get(identity), version
        return before != version

    def _gone(self, identity: Identity) -> None:
        self._versions.pop(identity, None)
        message(f"{self._noun.kind} {identity[1]!r} is gone.")


def _client_class(output: Output) -> type[KubeClient]:
    return TableClient if output in AS_TABLE else KubeClient


def _named(query: ObjectQuery, name: str) -> Selection:
    fields = [f"metadata.name={name}", query.selection.fields]
    return replace(query.selection, fields=",".join(filter(None, fields)))


def _identity(obj: Object) -> Identity:
    metadata = obj["metadata"]
    return str(metadata.get("namespace") or ""), str(metadata["name"])


def _view(noun: KubeNoun, client: KubeClient) -> View:
    plural = noun.resource.full_name
    if not isinstance(client, TableClient):
        return View(noun.kind, name_key=NAME_KEY, plural=plural)
    columns = (NAMESPACE, *client.columns) if noun.resource.namespaced else client.columns
    return View(noun.kind, columns, NAME_KEY, plural)


def _rows(objects: Sequence[Object], noun: KubeNoun, client: KubeClient, output: Output) -> Iterator[dict[str, Any]]:
    if isinstance(client, TableClient):
        names = [column.field for column in client.columns]
        return (_table_row(obj, names, noun) for obj in objects)
    if output is Output.NAME:
        return ({NAME_KEY: obj["metadata"]["name"]} for obj in objects)
    return (_object_row(obj, noun) for obj in objects)


def _table_row(obj: Object, names: Sequence[str], noun: KubeNoun) -> dict[str, Any]:
    namespace = {NAMESPACE.field: obj["metadata"].get("namespace")} if noun.resource.namespaced else {}
    return namespace | dict(zip(names, obj["cells"], strict=False))


def without_managed_fields(obj: Object) -> Object:
    """An object without the record of who wrote which field, which kubectl does not show either."""
    metadata: dict[str, Any] = {key: value for key, value in obj["metadata"].items() if key != "managedFields"}
    return {**obj, "metadata": metadata}


def _object_row(obj: Object, noun: KubeNoun) -> dict[str, Any]:
    """The object as a single request would answer it; a list leaves out what all its items have in common."""
    return {"apiVersion": noun.resource.api_version, "kind": noun.resource.kind} | without_managed_fields(obj)
