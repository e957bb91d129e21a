"""The synthetic sample: the same seed gives the same file, and it has all that the real one has."""

import io
from pathlib import Path

import pytest

from gpuledger.tools.importers.sample import write_titan_sample
from support.imports import titan


def _sample(seed: int, devices: int) -> str:
    file = io.StringIO(newline="")
    write_titan_sample(file, seed=seed, devices=devices)
    return file.getvalue()


def test_a_seed_gives_one_file() -> None:
    assert _sample(1, 300) == _sample(1, 300)
    assert _sample(1, 300) != _sample(2, 300)


@pytest.mark.parametrize("devices", [8, 200, 1_000])
async def test_it_imports_without_rejects_and_has_both_failures(tmp_path: Path, devices: int) -> None:
    path = tmp_path / "sample.csv"
    path.write_text(_sample(7, devices))
    imported = await titan(path)
    assert imported.rejects == []
    kinds = {kind for _, kind, _ in imported.recorded()}
    assert kinds == {"slot.declared", "device.inserted", "device.removed", "device.failed", "source.completed"}
    assert {event.data.kind for event in imported.events if event.data.EVENT == "failed"} == {"DBE", "OTB"}  # type: ignore[attr-defined]
    serials = {event.subject for event in imported.events if event.data.EVENT == "inserted"}
    assert devices * 0.8 < len(serials) < devices * 2.5


def test_it_holds_two_devices_in_a_slot_and_a_device_in_two_slots() -> None:
    rows = [line.split(",") for line in _sample(3, 400).splitlines()[1:]]
    lives = [(row[0], row[1], row[2], row[3]) for row in rows if row[2]]
    pairs = [
        (one, other)
        for number, one in enumerate(lives)
        for other in lives[number + 1 :]
        if one[2] < other[3] and other[2] < one[3]
    ]
    assert sum(one[1] == other[1] for one, other in pairs) == 2
    assert sum(one[0] == other[0] for one, other in pairs) == 1


def test_a_sample_that_is_too_small_is_an_error() -> None:
    with pytest.raises(ValueError, match="at least 8 devices, not 7"):
        _sample(1, 7)
