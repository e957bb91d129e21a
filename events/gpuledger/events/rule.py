"""Rules about edge events, and from where on in the log they are enforced."""

from gpuledger.events.envelope import decode
from gpuledger.events.errors import EventError
from gpuledger.events.payload import Number, Payload
from gpuledger.events.publishing import Rule, SourceKind, by_service
from gpuledger.events.registry import registry
from gpuledger.events.subjects import subject_of


@registry.event("rule", "enforced", by_service(SourceKind.SOURCES))
class RuleEnforced(Payload):
    """Every fold enforces the rule named by the subject, in this version, from this position on.

    What was recorded before is not judged again. A build that does not know the rule, or its version, stops here.
    Where the subject is a type of event, that type is in force from here on (odd versions), or no longer (even ones,
    which a build records that does not know it); that stops nobody.
    """

    version: Number = 1


def rule_subject(rule: Rule) -> str:
    """The subject under which it is recorded that a rule is enforced."""
    return subject_of(f"/services/{SourceKind.SOURCES}", RuleEnforced.AGGREGATE, rule, RuleEnforced.EVENT)


def rule_version(raw: bytes) -> int:
    """The version that an event brings into force; 0 where it is none that this build can read."""
    try:
        data = decode(raw).data
    except EventError:
        return 0
    return data.version if isinstance(data, RuleEnforced) else 0
