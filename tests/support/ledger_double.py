"""What test doubles of ledgers share: each is a ledger of the kind that it doubles, and does one thing differently."""

from types import new_class
from typing import Any, Self

from gpuledger.ledger.jetstream import JetStreamLedger


class LedgerDouble(JetStreamLedger):
    """Another ledger, of one partition or of several, in all that a subclass does not override.

    `super()` of a subclass leads to the class of that ledger, and what that calls on itself to the subclass.
    """

    def __new__(cls, ledger: JetStreamLedger, *_: Any, **__: Any) -> Self:
        doubled: type[Self] = new_class(cls.__name__, (cls, type(ledger)))
        return object.__new__(doubled)

    def __init__(self, ledger: JetStreamLedger) -> None:
        vars(self).update(vars(ledger))
