"""Slices, pools and claims for `gpuledger get`: at a moment, or with every change that comes."""

from collections.abc import Iterable
from pathlib import Path
from typing import NamedTuple

from gpuledger.cli.backend import open_backend
from gpuledger.cli.errors import CliError
from gpuledger.cli.get.availability_nouns import AvailabilityNoun
from gpuledger.cli.get.watch import Rows, Watched, follow
from gpuledger.cli.render import Output, render
from gpuledger.cli.run import run
from gpuledger.domain.dra.fold import Availability
from gpuledger.tools.queries.availability import availability_as_of, current_availability
from gpuledger.tools.queries.backend import Backend, named_projections
from gpuledger.tools.queries.moments import PointInTime, sequence_of
from gpuledger.tools.queries.rows import RowDict


class Selected(NamedTuple):
    """Which rows: all of a kind, or of a namespace, or of these names. A claim's is NAMESPACE/NAME, or NAME in one."""

    noun: AvailabilityNoun
    names: tuple[str, ...] = ()
    namespace: str | None = None

    def of(self, state: Availability) -> list[RowDict]:
        """The rows that are wanted."""
        return [row for row in self.noun.rows(state) if self._has(row)]

    def missing(self, rows: Iterable[RowDict]) -> list[str]:
        """The names that no row has."""
        found = set(map(self.noun.name_of, rows))
        return [name for name in self._full_names() if name not in found]

    def _has(self, row: RowDict) -> bool:
        if self.namespace is not None and row["namespace"] != self.namespace:
            return False
        return not self.names or self.noun.name_of(row) in self._full_names()

    def _full_names(self) -> list[str]:
        bare = [self.noun.bare(name) for name in self.names]
        if self.namespace is None:
            return bare
        return [name if "/" in name else f"{self.namespace}/{name}" for name in bare]


def show_availability(
    wanted: Selected, moment: PointInTime, output: Output, data_dir: Path | None, *, headers: bool
) -> None:
    """Show the rows of a moment.

    Raises:
        CliError: one that was named is not there.
    """
    noun = wanted.noun
    rows = wanted.of(run(_state(noun, moment, data_dir)))
    if rows or not wanted.names:
        render(noun.shown(rows, output), noun.view, output, headers=headers)
    for name in wanted.missing(rows):
        raise CliError(f"{noun.view.kind} {name!r} was not found", f"List them with `gpuledger get {noun.view.kinds}`")


async def watch_availability(wanted: Selected, data_dir: Path | None, output: Output, *, headers: bool) -> None:
    """Show the rows, then every one that changes, for ever. What is no more is told on stderr."""
    noun = wanted.noun
    watched = Watched(noun.view, noun.name_of, lambda rows: noun.shown(rows, output))
    (projection,) = named_projections(["availability"])
    async with open_backend(data_dir, f"get {noun.view.kinds} --watch") as backend:

        async def read() -> Rows:
            rows = wanted.of(await current_availability(backend))
            return {tuple(row[part] for part in noun.key): row for row in rows}

        await follow(backend, projection, read, watched, output, headers=headers)


async def _state(noun: AvailabilityNoun, moment: PointInTime, data_dir: Path | None) -> Availability:
    async with open_backend(data_dir, f"get {noun.view.kinds}") as backend:
        return await _state_at(backend, moment)


async def _state_at(backend: Backend, moment: PointInTime) -> Availability:
    if moment.recorded is not None:
        return await availability_as_of(backend, await sequence_of(backend, moment.recorded))
    return await current_availability(backend) if moment.at is None else await availability_as_of(backend, moment.at)
