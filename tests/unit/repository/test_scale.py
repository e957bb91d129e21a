"""docs/scale.md has the tables of the model."""

from bench.scale_model import DENSE, MIXED, checked_events, checks_table, events_table, needs_table
from support.paths import ROOT


def test_the_capacity_page_has_what_the_model_says() -> None:
    page = (ROOT / "docs" / "scale.md").read_text()
    for table in (events_table(), needs_table(MIXED), needs_table(DENSE), checks_table()):
        assert table in page, table


def test_a_checked_pod_counts_its_observations_and_its_part_of_its_gang() -> None:
    assert checked_events(1, 0) == 5
    assert checked_events(3, 8) == 9.375
