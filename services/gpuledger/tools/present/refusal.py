"""Refuses questions about the past where there is no ledger, and says how it can be asked."""

from typing import Final

from gpuledger.tools.errors import RequestError

ANOTHER_WAY: Final = "Set NATS_URL and DATABASE_URL, or name the --data-dir of a ledger"
"""How the past can be asked."""


def refuse_past(moment: object) -> None:
    """Refuse to answer about the past.

    Raises:
        RequestError: there is a moment.
    """
    if moment is not None:
        raise RequestError("There is no ledger here, and Kubernetes has no past", ANOTHER_WAY)
