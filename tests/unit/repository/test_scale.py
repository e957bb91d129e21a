"""docs/scale.md has the tables of the model."""

from bench.scale_model import DENSE, MIXED, events_table, needs_table
from support.paths import ROOT


def test_the_capacity_page_has_what_the_model_says() -> None:
    page = (ROOT / "docs" / "scale.md").read_text()
    for table in (events_table(), needs_table(MIXED), needs_table(DENSE)):
        assert table in page, table
