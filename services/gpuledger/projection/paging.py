"""Rows that have left memory come back before an event touches them."""

from typing import Any

from gpuledger.ledger.api import Message
from gpuledger.projection.fold import Fold
from gpuledger.projection.store import Store


async def page_in(store: Store, fold: Fold, messages: list[Message]) -> None:
    """Read back the retired rows that these messages may touch, in one query a table."""
    projection = fold.projection
    if not projection.pages:
        return
    touched: dict[str, set[Any]] = {}
    for message in messages:
        fact = fold.peek(message)
        for table, key in projection.touched(fold.state, fact) if fact else ():
            touched.setdefault(table, set()).add(key)
    await store.page_in(fold, touched)
