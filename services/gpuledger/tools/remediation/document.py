"""Reads a document of remedies from YAML, and checks it whole. Pure."""

from collections.abc import Iterator
from typing import Annotated, Any, Final, Literal

from pydantic import AfterValidator, Field

from gpuledger.domain.inventory.state import json_text
from gpuledger.domain.remediation.rules import problems
from gpuledger.edge.kube.schema.object_names import dns_label_problem
from gpuledger.events.remediation import AttemptLimits, RemediationRulesApplied
from gpuledger.tools.document_forms import Duration, Entries, Form, RulesForm

ENTRIES: Final = Entries("remedies")
TIMEOUT_DEFAULT_S: Final = 3600


def _json(value: dict[str, Any]) -> dict[str, Any]:
    try:
        json_text(value)
    except TypeError as error:  # YAML has keys, numbers, sets and bytes that JSON does not have.
        raise ValueError(f"it is no object of JSON, as Kubernetes takes it: {error}") from error
    return value


class _Sign(Form):
    condition: str | None = None
    status: str = "True"
    path: str | None = None
    values: list[str] = []


class _Outcome(Form):
    succeeded: _Sign
    failed: _Sign | None = None


class _Remedy(Form):
    name: str
    equivalence_group: str | None = None
    scope: Literal["Node", "Device"] = "Node"
    actions: list[str] = []
    custom_actions: list[str] = []
    resource: str
    template: Annotated[dict[str, Any], AfterValidator(_json)]
    outcome: _Outcome
    timeout: Duration = TIMEOUT_DEFAULT_S
    escalate_to: str | None = None
    retention: Duration | None = None

    def remedy(self) -> dict[str, Any]:
        """The remedy as it is recorded."""
        return {
            "name": self.name,
            "group": self.equivalence_group or self.name,
            "scope": self.scope.lower(),
            "actions": self.actions,
            "custom_actions": self.custom_actions,
            "resource": self.resource,
            "template": json_text(self.template),
            "succeeded": self.outcome.succeeded.model_dump(),
            "failed": None if self.outcome.failed is None else self.outcome.failed.model_dump(),
            "timeout_s": self.timeout,
            "escalate_to": self.escalate_to,
            "retention_s": self.retention,
        }


class _Attempts(Form):
    max: int = AttemptLimits().count
    period: Duration = AttemptLimits().period_s


class _Document(RulesForm):
    kind: Literal["RemediationRules"]
    attempts: _Attempts = _Attempts.model_construct()
    remedies: list[_Remedy] = Field(default=[])

    def content(self) -> dict[str, Any]:
        """What is recorded of it."""
        return {
            "remedies": [one.remedy() for one in self.remedies],
            "attempts": {"count": self.attempts.max, "period_s": self.attempts.period},
        }


def parse(text: bytes, file: str) -> RemediationRulesApplied:
    """The remedies in a text; `file` is the name by which the user gave it.

    Raises:
        RequestError: something is wrong with them.
    """
    return ENTRIES.read(text, file, _Document, RemediationRulesApplied, _problems)


def _problems(document: RemediationRulesApplied) -> Iterator[str]:
    """What no remedy can be, and then what Kubernetes would not take."""
    yield from problems(document)
    for at, one in enumerate(document.remedies):
        problem = dns_label_problem(one.resource)
        if problem is not None:
            yield f"remedies[{at}] {one.name!r}: resource {one.resource!r} is not the plural of a kind: it {problem}."
