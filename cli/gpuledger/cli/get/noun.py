"""What a kind of thing is to `get`: one of the ledger, with a table, and one of Kubernetes."""

from dataclasses import dataclass
from typing import Any

from gpuledger.api.kinds import Resource
from gpuledger.cli.render import View
from gpuledger.domain.table import TableSpec
from gpuledger.tools.queries.rows import RowSource


@dataclass(frozen=True, slots=True)
class Noun:
    """One kind of thing. `at` names the function that gives its rows at a time, where there is one.

    `narrowed_by` are columns by whose value a user may choose rows, beside their names. Where `ends` names the column
    of the time when a row ended, those that have not are shown by default. `always` are values of columns by which all
    rows are chosen, whatever a user chooses.
    """

    view: View
    projection: str
    spec: TableSpec[Any]
    order: tuple[str, ...]
    at: str | None
    hidden: tuple[str, ...] = ()
    aliases: tuple[str, ...] = ()
    narrowed_by: tuple[str, ...] = ()
    ends: str | None = None
    always: tuple[tuple[str, str], ...] = ()

    @property
    def source(self) -> RowSource:
        """Where its rows come from."""
        view = self.view
        return RowSource(view.kinds, self.projection, self.spec, self.order, view.name_key, self.at, self.hidden)


@dataclass(frozen=True, slots=True)
class KubeNoun:
    """One kind of Kubernetes object; `beside` are kinds that are shown with it."""

    resource: Resource
    aliases: tuple[str, ...] = ()
    beside: "tuple[KubeNoun, ...]" = ()

    @property
    def kind(self) -> str:
        """The kind as `kubectl get -o name` writes it."""
        group = f".{self.resource.group}" if self.resource.group else ""
        return f"{self.resource.kind.lower()}{group}"

    def bare(self, name: str) -> str:
        """A name as people give it: alone, or behind its kind."""
        kind, slash, rest = name.partition("/")
        words = {word for one in (self, *self.beside) for word in (one.kind, one.resource.plural, *one.aliases)}
        return rest if slash and kind.lower() in words else name
