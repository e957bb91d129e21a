"""How `gpuledger get` reads rows and shows them."""

import gc
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from typing import ClassVar

import pytest

from gpuledger.cli.get import ledger
from gpuledger.cli.get.ledger import TableQuery, show_rows
from gpuledger.cli.get.nouns import DEVICES
from gpuledger.cli.render import Output
from gpuledger.runtime.garbage import YOUNG_OBJECTS_MAX
from gpuledger.tools.queries.backend import Backend
from gpuledger.tools.queries.found_rows import RowDict
from gpuledger.tools.queries.moments import NOW, PointInTime


class _Rows(TableQuery):
    """One row, and how many young objects the garbage collector lets be while it is read."""

    young: ClassVar[list[int]] = []

    async def read(self, _backend: Backend, _moment: PointInTime, columns: Sequence[str] = ()) -> Sequence[RowDict]:
        self.young.append(gc.get_threshold()[0])
        return [dict.fromkeys(columns, "a")]


@asynccontextmanager
async def _nothing(*_arguments: object, **_options: object) -> AsyncIterator[None]:
    yield None


async def test_the_collector_lets_rows_be_while_they_are_read(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(ledger, "open_backend", _nothing)
    before, query = gc.get_threshold(), _Rows(DEVICES, ())
    await show_rows(query, NOW, Output.NAME, None, headers=True)
    assert (query.young, gc.get_threshold()) == ([YOUNG_OBJECTS_MAX], before)
    assert capsys.readouterr().out == "device/a\n"
