"""The policy that restricts access to the inventory, evaluated as the embedded API server does."""

from functools import cache
from importlib.resources import files

import yaml

from gpuledger.api.kinds import GPU_DEVICES, GPU_NODE_STATES
from gpuledger.local.kubeapi.admission_request import KindVersion, Question
from gpuledger.local.kubeapi.policies import Review, outcome_of
from support.admission import Json

EDITORS = ("devs", "system:authenticated")
KINDS = {
    one.plural: KindVersion(one.group, one.version, one.kind, one.plural) for one in (GPU_DEVICES, GPU_NODE_STATES)
}


@cache
def manifest(name: str) -> Json:
    """A manifest of the package."""
    read: Json = yaml.safe_load((files("gpuledger.schemas") / "manifests" / f"{name}.yaml").read_text())
    return read


def allows(
    old: Json | None, new: Json | None, *, groups: tuple[str, ...] = EDITORS, plural: str = "gpudevices", sub: str = ""
) -> bool:
    """Whether the policy lets members of these groups make this change."""
    operation = "CREATE" if old is None else "DELETE" if new is None else "UPDATE"
    user = {"username": "somebody", "groups": list(groups)}
    question = Question(operation, KINDS[plural], "d", subresource=sub, is_namespaced=False, user=user)
    review = Review(question, new, old, lambda _: None)
    policy, binding = (manifest(f"restricted-access-{part}") for part in ("policy", "binding"))
    refusal = outcome_of([policy], [binding], review).refusal
    assert refusal is None or "denied request: RestrictedAccess: " in refusal.message, refusal.message
    return refusal is None
