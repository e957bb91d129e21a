"""How long a process stands still for Python's garbage collector."""

import gc

import pytest

from gpuledger.runtime import garbage


def test_what_survives_a_long_walk_is_left_alone_until_the_end(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(garbage, "STANDSTILL_MAX_S", 0.0)
    frozen = gc.get_freeze_count()
    with garbage.short_walks():
        gc.collect()
        assert gc.get_freeze_count() > frozen
    assert gc.get_freeze_count() == 0


def test_short_walks_leave_nothing_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(garbage, "STANDSTILL_MAX_S", 1e9)
    gc.unfreeze()
    with garbage.short_walks():
        gc.collect()
        assert gc.get_freeze_count() == 0


def test_nothing_is_collected_while_rows_are_made() -> None:
    assert gc.isenabled()
    with garbage.uncollected():
        assert not gc.isenabled()
        with garbage.uncollected():
            assert not gc.isenabled()
        assert not gc.isenabled()
    assert gc.isenabled()
    gc.disable()
    try:
        with garbage.uncollected():
            pass
        assert not gc.isenabled()
    finally:
        gc.enable()
