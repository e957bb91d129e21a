"""How a resource retries its registration, and what it checks meanwhile."""

import asyncio
from collections.abc import Iterator
from pathlib import Path

import pytest

from gpuledger.agent.hardware.api import CardFacts
from gpuledger.agent.plugin.allocate import DeviceInjection
from gpuledger.agent.plugin.device_list import ListedUnit
from gpuledger.agent.plugin.resource import POLL_PERIOD_S, WITHDRAW_GRACE_S, PluginResource
from gpuledger.agent.plugin.service import PluginContext, PluginCounts, PluginService
from support.kubelet_parts import short_folder, whole_cards

POOL = "gpu.deckhouse.io/a"
UNITS = (ListedUnit(whole_cards(0)[0], healthy=True, numa_node=None),)
NO_CARDS: tuple[CardFacts, ...] = ()


@pytest.fixture
def folder() -> Iterator[Path]:
    with short_folder() as path:
        yield path


def names(folder: Path) -> list[str]:
    return [path.name for path in folder.iterdir()]


class Looks:
    """Waits for nothing; keeps after which looks there had been how many errors, and ends after so many."""

    def __init__(self, end_after: int) -> None:
        self.counts = PluginCounts()
        self.errors: list[int] = []
        self.pauses: list[float] = []
        self._end_after = end_after

    async def sleep(self, seconds: float) -> None:
        self.pauses.append(seconds)
        self.errors.append(self.counts.errors)
        if len(self.errors) >= self._end_after:
            raise asyncio.CancelledError

    def resource(self, folder: Path) -> PluginResource:
        service = PluginService(POOL, PluginContext(DeviceInjection(), None, lambda *_: None), self.counts)
        service.offer(UNITS, NO_CARDS)
        return PluginResource(service, folder, self.counts, sleep=self.sleep)

    @property
    def tries(self) -> list[int]:
        """After which looks it had been tried in vain once more."""
        return [look for look, count in enumerate(self.errors) if count > ([0, *self.errors][look])]


async def test_tries_become_fewer_but_never_end(folder: Path) -> None:
    (folder / "kubelet.sock").touch()
    looks = Looks(100)
    resource = looks.resource(folder)
    with pytest.raises(asyncio.CancelledError):
        await resource.run()
    assert looks.tries == [0, 1, 3, 7, 15, 31, 62, 93]
    assert set(looks.pauses) == {POLL_PERIOD_S}
    assert resource.trouble is not None
    assert "No kubelet answers" in resource.trouble
    assert names(folder) == ["kubelet.sock"], "its own socket is removed at the end"


async def test_a_kubelet_that_is_another_one_is_tried_at_once(folder: Path) -> None:
    (folder / "kubelet.sock").touch()
    looks = Looks(30)
    resource = looks.resource(folder)

    async def sleep(seconds: float) -> None:
        if len(looks.errors) == 20:
            (folder / "kubelet.sock").rename(folder / "old")
            (folder / "kubelet.sock").touch()
        await looks.sleep(seconds)

    resource._sleep = sleep
    with pytest.raises(asyncio.CancelledError):
        await resource.run()
    assert looks.tries == [0, 1, 3, 7, 15, 21, 22, 24, 28]


async def test_a_folder_that_cannot_hold_a_socket_is_trouble_and_no_end(folder: Path) -> None:
    (folder / "kubelet.sock").touch()
    deep = folder / ("d" * 60)
    deep.mkdir()
    (deep / "kubelet.sock").touch()
    looks = Looks(3)
    resource = looks.resource(deep)
    with pytest.raises(asyncio.CancelledError):
        await resource.run()
    assert "give a shorter folder" in (resource.trouble or "")


async def test_without_units_it_ends_after_a_while(folder: Path) -> None:
    looks = Looks(30)
    resource = looks.resource(folder)
    resource.service.offer((), NO_CARDS)
    await resource.run()
    assert looks.pauses == [WITHDRAW_GRACE_S]
