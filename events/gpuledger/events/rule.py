"""Rules about edge events, and from where on in the log they are enforced."""

from gpuledger.events.payload import Number, Payload
from gpuledger.events.publishing import SourceKind, by_service
from gpuledger.events.registry import registry


@registry.event("rule", "enforced", by_service(SourceKind.SOURCES))
class RuleEnforced(Payload):
    """Every fold enforces the rule named by the subject, in this version, from this position on.

    What was recorded before is not judged again. A build that does not know the rule, or its version, stops here.
    Where the subject is a type of event, that type is in force from here on (odd versions), or no longer (even ones,
    which a build records that does not know it); that stops nobody.
    """

    version: Number = 1
