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


def test_a_process_that_ends_leaves_all_that_it_holds_alone() -> None:
    gc.unfreeze()
    try:
        with pytest.raises(KeyError), garbage.ending_unwalked():
            raise KeyError
        assert gc.get_freeze_count() > 0
    finally:
        gc.unfreeze()


def test_what_was_imported_is_left_alone_and_what_comes_later_is_not() -> None:
    gc.unfreeze()
    before = gc.get_threshold()
    try:
        with garbage.imports_unwalked():
            imported: list[list[object]] = [[] for _ in range(100)]
        frozen = gc.get_freeze_count()
        assert (frozen >= len(imported), gc.get_threshold()) == (True, before)
        later: list[list[object]] = [[] for _ in range(100)]
        assert (len(later), gc.get_freeze_count()) == (100, frozen)
    finally:
        gc.unfreeze()


@pytest.mark.long
def test_short_walks_leave_nothing_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(garbage, "STANDSTILL_MAX_S", 1e9)
    gc.unfreeze()
    with garbage.short_walks():
        gc.collect()
        assert gc.get_freeze_count() == 0


def test_the_first_fold_makes_walks_rare_and_the_last_one_ends_that() -> None:
    of_tests = gc.get_threshold()
    before = (700, 10, 10)
    gc.set_threshold(*before)
    try:
        with garbage.seldom_collected():
            with garbage.seldom_collected():
                assert gc.get_threshold() == (garbage.YOUNG_OBJECTS_MAX, *before[1:])
            assert gc.get_threshold() == (garbage.YOUNG_OBJECTS_MAX, *before[1:])
        assert gc.get_threshold() == before
    finally:
        gc.set_threshold(*of_tests)


def test_cycles_that_a_fold_leaves_behind_do_not_gather_without_end() -> None:
    class Cycle:
        """An object that only the collector frees."""

        living = 0

        def __init__(self) -> None:
            Cycle.living += 1
            self.own = self

        def __del__(self) -> None:
            Cycle.living -= 1

    assert gc.isenabled()
    with garbage.seldom_collected():
        for _ in range(2 * garbage.YOUNG_OBJECTS_MAX):
            Cycle()
        assert Cycle.living <= garbage.YOUNG_OBJECTS_MAX


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
