"""Which pods to expect, learnt within a bound."""

from gpuledger.domain.sharing.fragmentation import TaskClass
from gpuledger.domain.sharing.mix import CLASSES_MAX, PODS_MAX, ExpectedPods

HALF, WHOLE_ONE = TaskClass(1, 50), TaskClass(1, 100)


def test_the_mix_in_force_changes_in_steps() -> None:
    expected = ExpectedPods()
    for _ in range(100):
        expected.see(HALF)
    before = expected.fragmentation
    expected.see(WHOLE_ONE)
    assert expected.fragmentation is before
    for _ in range(40):
        expected.see(WHOLE_ONE)
    assert expected.fragmentation is not before
    assert expected.fragmentation.mix[WHOLE_ONE] > 0


def test_the_rarest_class_gives_way() -> None:
    expected = ExpectedPods()
    expected.see(HALF)
    expected.see(HALF)
    for cpu_milli in range(2 * CLASSES_MAX):
        expected.see(TaskClass(1, 10, cpu_milli))
    expected.renew()
    assert len(expected.fragmentation.mix) == CLASSES_MAX
    assert expected.fragmentation.mix[HALF] == 2


def test_old_pods_count_less() -> None:
    expected = ExpectedPods()
    for _ in range(PODS_MAX):
        expected.see(HALF)
    for _ in range(PODS_MAX // 2 - 1):
        expected.see(WHOLE_ONE)
    expected.renew()
    assert expected.fragmentation.pods < PODS_MAX
    assert expected.fragmentation.mix[WHOLE_ONE] > expected.fragmentation.mix[HALF] // 2
