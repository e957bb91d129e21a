"""Histories that operators shorten: what ended long ago is kept no longer, and what happened then counts no more."""

from pydantic import AwareDatetime

from gpuledger.events.payload import Payload
from gpuledger.events.publishing import SourceKind, by_service
from gpuledger.events.registry import registry


@registry.event("history", "shortened", by_service(SourceKind.OPERATORS), introduced=True)
class HistoryShortened(Payload):
    """From here on the history that the subject names has nothing of what ended before `before`.

    An event of before that would change it is rejected where it stands behind this one. The history never becomes
    longer again: of several bounds the latest holds. A build that does not know the history stops here.
    """

    before: AwareDatetime
