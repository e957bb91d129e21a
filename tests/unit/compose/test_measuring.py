"""What is measured again and again: a value is given up when measuring failed twice in a row, and not before."""

import asyncio
from collections.abc import Sequence

import pytest

from gpuledger.compose.measuring import FAILURES_MAX, keep_measuring
from gpuledger.db.errors import DatabaseUnavailableError
from gpuledger.ledger.errors import LedgerUnavailableError


@pytest.mark.parametrize(
    ("answers", "given_up"),
    [
        ([True] * 4, 0),
        ([True, False, True, False, True], 0),
        ([True, False, False, True], 1),
        ([False] * (FAILURES_MAX + 1), 2),
    ],
)
async def test_a_value_is_given_up_after_failures_in_a_row(answers: Sequence[bool], given_up: int) -> None:
    left, times = list(answers), 0

    async def measure() -> None:
        if not left:
            raise asyncio.CancelledError
        if not left.pop(0):
            raise (LedgerUnavailableError if len(left) % 2 else DatabaseUnavailableError)("away")

    def give_up() -> None:
        nonlocal times
        times += 1

    with pytest.raises(asyncio.CancelledError):
        await keep_measuring("test", measure, give_up, interval_s=0)
    assert times == given_up
