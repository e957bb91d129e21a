"""How many processes measure, and which of their results count."""

import pytest

from gpuledger.preflight.cards import VisibleCards
from gpuledger.preflight.workers import RESULT, results_in


@pytest.mark.parametrize(
    ("cards", "processes"),
    [(VisibleCards(()), 1), (VisibleCards(("GPU-1", "GPU-2")), 2), (VisibleCards(("GPU-1", "GPU-2"), instances=3), 1)],
)
def test_each_card_has_a_process_but_of_instances_one_is_reached(cards: VisibleCards, processes: int) -> None:
    assert cards.processes == processes


@pytest.mark.parametrize("text", ['{"gbps": NaN}', '{"gbps": Infinity}', "[1]", "{", ""])
def test_what_is_no_result_is_left_out(text: str) -> None:
    lines = f'noise\n[default0]:{RESULT}{text}\n{RESULT}{{"gbps": 1.5}}\n'
    assert results_in(lines) == [{"gbps": 1.5}]
