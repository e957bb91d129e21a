"""Calls to the hardware from the event loop: bounded, one at a time, and never in the way of the process's end."""

import asyncio
import subprocess
import sys
from collections.abc import AsyncIterator
from pathlib import Path
from threading import Event
from typing import Any

import pytest

from gpuledger.agent.hardware.api import Readings, Xid
from gpuledger.agent.hardware.calls import CallTimeouts, HardwareCalls
from gpuledger.agent.hardware.errors import CardLostError, DriverMissingError, HardwareError, HungError
from support.fake_nvml import hanging
from support.hardware import FIRST, SECOND, Bench, bench
from support.waiting import eventually

SHORT = CallTimeouts(0.05, 0.05, 0.05)


@pytest.fixture
def made(tmp_path: Path) -> Bench:
    return bench(tmp_path)


@pytest.fixture
async def calls(made: Bench) -> AsyncIterator[HardwareCalls]:
    calling = HardwareCalls(made.hardware)
    yield calling
    await calling.close()


async def test_each_call_reaches_the_hardware(calls: HardwareCalls) -> None:
    assert calls.kind == "nvml"
    assert [card.address for card in (await calls.survey()).cards] == [FIRST, SECOND]
    assert isinstance(await calls.readings(FIRST), Readings)
    assert await calls.set_mig(FIRST, enabled=True)
    instance = await calls.create_instance(FIRST, "1g.10gb", 0)
    assert await calls.users(FIRST) == frozenset()
    await calls.destroy_instance(FIRST, instance.uuid)
    assert (await calls.survey()).cards[0].instances == ()


async def test_errors_come_through(calls: HardwareCalls) -> None:
    with pytest.raises(CardLostError):
        await calls.readings("0000:ff:1f.0")
    with pytest.raises(DriverMissingError):
        await HardwareCalls(_Missing()).next_xid()


async def test_calls_are_made_one_at_a_time() -> None:
    hardware = _Counting()
    calls = HardwareCalls(hardware)
    await asyncio.gather(*(calls.readings(FIRST) for _ in range(50)))
    await calls.close()
    assert hardware.most == 1


async def test_a_driver_that_hangs_is_given_up_and_recovers(made: Bench) -> None:
    calls = HardwareCalls(made.hardware, timeouts=SHORT)
    with hanging(made.nvml):
        with pytest.raises(HungError, match=r"was not over in 0\.05 s"):
            await calls.survey()
        for _ in range(3):
            with pytest.raises(HungError, match="has not come back"):
                await calls.readings(FIRST)

    async def back() -> bool:
        try:
            return bool(await calls.readings(FIRST))
        except HungError:
            return False

    await eventually(back)
    await calls.close()


async def test_those_who_wait_behind_a_hung_call_fail_with_it(made: Bench) -> None:
    calls = HardwareCalls(made.hardware, timeouts=SHORT)
    with hanging(made.nvml):
        came = await asyncio.gather(*(calls.readings(FIRST) for _ in range(5)), return_exceptions=True)
    assert {type(each) for each in came} == {HungError}
    await calls.close()


async def test_a_call_whose_caller_went_away_is_waited_for(made: Bench) -> None:
    calls = HardwareCalls(made.hardware)
    with hanging(made.nvml):
        pending = asyncio.create_task(calls.survey())
        await eventually(lambda: _is(bool(made.nvml.calls)))
        pending.cancel()
        with pytest.raises(asyncio.CancelledError):
            await pending
        after = asyncio.create_task(calls.readings(FIRST))
        await asyncio.sleep(0)
    assert isinstance(await after, Readings)
    await calls.close()


async def test_a_call_that_never_began_is_not_made_later(made: Bench) -> None:
    calls = HardwareCalls(made.hardware, timeouts=CallTimeouts(read_s=0.05))
    with hanging(made.nvml):
        pending = asyncio.create_task(calls.survey())
        await eventually(lambda: _is(bool(made.nvml.calls)))
        pending.cancel()
        with pytest.raises(HungError):
            await calls.readings(FIRST)
        with pytest.raises(HungError, match="has not come back"):
            await calls.readings(FIRST)
    await calls.close()
    await eventually(lambda: _is("nvmlShutdown" in made.nvml.calls))
    assert "nvmlDeviceGetRemappedRows" not in made.nvml.calls


async def test_an_error_of_a_card_comes(made: Bench, calls: HardwareCalls) -> None:
    await calls.survey()
    waiting = asyncio.create_task(calls.next_xid())
    await eventually(lambda: _is("nvmlEventSetWait_v2" in made.nvml.calls))
    made.nvml.xid(made.card(SECOND), 43)
    assert await waiting == Xid(SECOND, 43)


async def test_an_error_that_comes_while_nobody_waits_any_more_is_stored(made: Bench, calls: HardwareCalls) -> None:
    await calls.survey()
    waiting = asyncio.create_task(calls.next_xid())
    await eventually(lambda: _is("nvmlEventSetWait_v2" in made.nvml.calls))
    waiting.cancel()
    made.nvml.xid(made.card(FIRST), 31)
    assert await calls.next_xid() == Xid(FIRST, 31)


async def test_waiting_for_errors_keeps_no_call_waiting(calls: HardwareCalls) -> None:
    await calls.survey()
    waiting = asyncio.create_task(calls.next_xid())
    for _ in range(5):
        await calls.readings(FIRST)
    assert not waiting.done()
    waiting.cancel()


async def test_after_its_end_nothing_is_called(made: Bench, calls: HardwareCalls) -> None:
    await calls.survey()
    await calls.close()
    await calls.close()
    with pytest.raises(HardwareError, match="closed"):
        await calls.survey()
    with pytest.raises(HardwareError, match="closed"):
        await calls.next_xid()
    assert made.nvml.calls.count("nvmlShutdown") == 1


async def test_the_end_does_not_wait_for_a_hung_driver(made: Bench) -> None:
    calls = HardwareCalls(made.hardware, timeouts=SHORT)
    with hanging(made.nvml):
        with pytest.raises(HungError):
            await calls.survey()
        await calls.close()


def test_the_process_ends_though_the_driver_hangs() -> None:
    program = """
import asyncio, threading
from gpuledger.agent.hardware.calls import CallTimeouts, HardwareCalls
from gpuledger.agent.hardware.errors import HungError

class Hanging:
    kind = "nvml"
    def survey(self): threading.Event().wait()
    wait_xid = lambda self, timeout_s: threading.Event().wait()
    def close(self): pass

async def main():
    calls = HardwareCalls(Hanging(), timeouts=CallTimeouts(0.01, 0.01, 0.01))
    waiting = asyncio.create_task(calls.next_xid())
    try:
        await calls.survey()
    except HungError:
        print("hung")
    waiting.cancel()
    await calls.close()

asyncio.run(main())
"""
    ended = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=60, check=False)
    assert (ended.returncode, ended.stdout, ended.stderr) == (0, "hung\n", "")


class _Missing:
    kind = "nvml"

    def __getattr__(self, name: str) -> Any:
        def missing(*_: object) -> None:
            raise DriverMissingError("There is none.")

        return missing


class _Counting(_Missing):
    """Counts how many calls are made at once."""

    def __init__(self) -> None:
        self.now = self.most = 0
        self.pause = Event()

    def readings(self, address: str) -> Readings:
        self.now += 1
        self.most = max(self.most, self.now)
        self.pause.wait(0.001)
        self.now -= 1
        return Readings()

    def close(self) -> None:
        pass


async def _is(value: bool) -> bool:
    return value
