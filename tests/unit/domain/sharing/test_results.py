"""Results are remembered within a bound."""

from gpuledger.domain.sharing.results import Results


def test_the_requests_not_met_for_the_longest_time_are_forgotten() -> None:
    results = Results[int](results_max=4)
    for state in range(2):
        results.put("old", state, state)
        results.put("met again", state, state)
    assert results.of("met again") == {0: 0, 1: 1}
    results.put("new", 0, 0)
    assert results.of("old") == {}
    assert results.of("met again") == {0: 0, 1: 1}
    assert len(results) == 3


def test_a_result_is_counted_once() -> None:
    results = Results[int]()
    assert [results.put("request", 1, result) for result in (5, 6)] == [5, 6]
    assert (len(results), results.of("request")) == (1, {1: 6})
