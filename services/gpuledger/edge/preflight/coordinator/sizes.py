"""Finds out how many pods a gang has: its pods say it, or the object of its scheduler that its source names.

The object may come after the pods, or never, or be nobody's to read: it is looked for at growing pauses, for as long
as pods wait, whose checks are tried again and again. Users change it: so it is read again, more rarely, until the gang
is complete. That it is not found keeps nothing else from being done for the gang.
"""

from collections.abc import Callable, Sequence
from typing import Final, NamedTuple

from gpuledger.domain.preflight.gangs import GangObject, object_of, size_in
from gpuledger.edge.effects.tools import EffectTools
from gpuledger.edge.kube.errors import KubeError, NotFoundError
from gpuledger.edge.preflight.coordinator.decide import size_of, source_of
from gpuledger.edge.preflight.coordinator.settings import CoordinatorSettings
from gpuledger.edge.preflight.coordinator.state import GangPod, GangRow
from gpuledger.events.payload import truncated

CoordinatorTools = EffectTools[CoordinatorSettings]

LOOKS_BEFORE_NOTED: Final = 3
"""How often the object may be missing before that is recorded: most come moments after their pods."""


class SizeLook(NamedTuple):
    """What was found in a round: the size, or why there is none, after so many looks; the next one is at `next_at_s`.

    `next_at_s` is None where there is no object to look at.
    """

    round: str
    size: int | None = None
    problem: str = ""
    looks: int = 0
    next_at_s: float | None = None

    @property
    def is_noteworthy(self) -> bool:
        """Whether it is to be recorded that there is none."""
        return self.size is None and (self.looks >= LOOKS_BEFORE_NOTED or self.next_at_s is None)


class GangSizes:
    """The sizes of gangs; `now_s` gives seconds of a steady clock."""

    def __init__(self, tools: CoordinatorTools, now_s: Callable[[], float]) -> None:
        self._tools = tools
        self._now_s = now_s
        self._looks: dict[str, SizeLook] = {}

    def forget(self, gang: str) -> None:
        """The gang is over."""
        self._looks.pop(gang, None)

    async def find(self, row: GangRow, pods: Sequence[GangPod]) -> SizeLook:
        """The size of a gang, or why there is none yet; looks for its object where that is due."""
        size = size_of(pods)
        if size is not None:
            return SizeLook(row.round, size)
        before = self._looks.get(row.gang)
        if before is None or before.round != row.round:
            before = SizeLook(row.round, next_at_s=self._now_s())
        is_settled = before.size is not None and row.is_complete
        if is_settled or before.next_at_s is None or before.next_at_s > self._now_s():
            return before
        found = self._looks[row.gang] = await self._look(row, source_of(pods), before)
        return found

    async def _look(self, row: GangRow, source: str, before: SizeLook) -> SizeLook:
        named = object_of(source)
        if named is None:
            return before._replace(problem=_no_size(source), next_at_s=None)
        size, problem = await self._read(row, source, named)
        size = before.size if size is None else size
        looks, settings = before.looks + 1, self._tools.settings
        pauses = settings.size_looks if size is None else settings.size_rechecks
        return SizeLook(row.round, size, problem, looks, self._now_s() + pauses.pause_s(looks, self._tools.jitter()))

    async def _read(self, row: GangRow, source: str, named: GangObject) -> tuple[int | None, str]:
        """The size by the object; else what is wrong."""
        kind = named.resources[0]
        for resource in named.resources:
            try:
                async with self._tools.breaker.request():
                    found = await self._tools.client.get(resource, named.name, row.namespace)
            except NotFoundError:
                continue
            except KubeError as error:
                return None, truncated(str(error))
            size = size_in(source, found)
            return size, "" if size is not None else _not_in(kind.kind, named.name)
        return (
            None,
            f"There is no {kind.full_name} {named.name}, which would say how many pods the gang has. Create it.",
        )


def _no_size(source: str) -> str:
    return (
        f"Neither the pods of {source} nor an object say how many pods it has. Label or annotate them with that "
        "number, as docs/preflight.md says."
    )


def _not_in(kind: str, name: str) -> str:
    return f"The {kind} {name} does not say how many pods the gang has: it has no policy `gang` with a number of pods."
