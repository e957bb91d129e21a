"""Webhook configurations: defaults and validation."""

from collections.abc import Iterator, Mapping
from typing import Any, ClassVar

from gpuledger.edge.kube.schema.causes import Cause, Object, duplicate, invalid, not_supported, required
from gpuledger.edge.kube.schema.object_names import dns_subdomain_problem
from gpuledger.local.kubeapi.resources import Strategy
from gpuledger.local.kubeapi.strategies.admission_shared import choice_causes, condition_causes, rule_causes
from gpuledger.local.kubeapi.strategies.core_shared import fill, selector_causes

TIMEOUT_S = 10
TIMEOUT_MAX_S = 30
SERVICE_PORT = 443
REVIEW_VERSIONS = ("v1", "v1beta1")

REINVOCATION_POLICIES = ("IfNeeded", "Never")


class ValidatingConfigurationStrategy(Strategy):
    """ValidatingWebhookConfigurations."""

    more_defaults: ClassVar[Mapping[str, Any]] = {}

    def default(self, obj: Object) -> None:
        """Fill in defaults: fail closed, every namespace and object, ten seconds. An empty CA bundle is none."""
        plain = {"failurePolicy": "Fail", "matchPolicy": "Equivalent", "timeoutSeconds": TIMEOUT_S}
        for hook in obj.get("webhooks") or ():
            fill(hook, {**plain, "namespaceSelector": {}, "objectSelector": {}, **self.more_defaults})
            for rule in hook.get("rules") or ():
                fill(rule, {"scope": "*"})
            config = hook.get("clientConfig") or {}
            if not config.get("caBundle"):
                config.pop("caBundle", None)
            service = config.get("service")
            if service is not None:
                fill(service, {"port": SERVICE_PORT})

    def validate(self, obj: Object) -> list[Cause]:
        """Check every webhook; names are unique."""
        hooks = obj.get("webhooks") or ()
        names = [hook.get("name") for hook in hooks]
        repeated = [
            duplicate(f"webhooks[{index}].name", name) for index, name in enumerate(names) if name in names[:index]
        ]
        found = (cause for index, hook in enumerate(hooks) for cause in _hook_causes(hook, f"webhooks[{index}]"))
        return [*found, *repeated]


class MutatingConfigurationStrategy(ValidatingConfigurationStrategy):
    """MutatingWebhookConfigurations."""

    more_defaults: ClassVar[Mapping[str, Any]] = {"reinvocationPolicy": "Never"}


def _hook_causes(hook: Object, field: str) -> Iterator[Cause]:
    yield from _name_causes(hook.get("name") or "", f"{field}.name")
    for index, rule in enumerate(hook.get("rules") or ()):
        yield from rule_causes(rule, f"{field}.rules[{index}]")
    yield from choice_causes(hook, field)
    reinvocation = hook.get("reinvocationPolicy")
    if reinvocation is not None and reinvocation not in REINVOCATION_POLICIES:
        yield not_supported(f"{field}.reinvocationPolicy", reinvocation, REINVOCATION_POLICIES)
    yield from condition_causes(hook.get("matchConditions") or [], f"{field}.matchConditions")
    yield from _side_effect_causes(hook.get("sideEffects"), f"{field}.sideEffects")
    timeout_s = hook.get("timeoutSeconds")
    if timeout_s is not None and not 1 <= timeout_s <= TIMEOUT_MAX_S:
        message = f"the timeout value must be between 1 and {TIMEOUT_MAX_S} seconds"
        yield invalid(f"{field}.timeoutSeconds", timeout_s, message)
    for name in ("namespaceSelector", "objectSelector"):
        yield from selector_causes(hook.get(name), f"{field}.{name}")
    yield from _client_causes(hook.get("clientConfig") or {}, f"{field}.clientConfig")
    yield from _version_causes(hook.get("admissionReviewVersions") or [], f"{field}.admissionReviewVersions")


def _name_causes(name: str, field: str) -> Iterator[Cause]:
    if not name:
        yield required(field)
    elif problem := dns_subdomain_problem(name):
        yield invalid(field, name, problem)
    elif name.count(".") < 2:
        yield invalid(field, name, "should be a domain with at least three segments separated by dots")


def _side_effect_causes(effects: str | None, field: str) -> Iterator[Cause]:
    if effects not in (supported := ("None", "NoneOnDryRun")):
        yield not_supported(field, effects, supported) if effects else required(field)


def _client_causes(config: Object, field: str) -> Iterator[Cause]:
    url, service = config.get("url"), config.get("service")
    if (url is None) == (service is None):
        yield required(field, "exactly one of url or service is required")
    elif service is not None:
        for name in ("name", "namespace"):
            if not service.get(name):
                yield required(f"{field}.service.{name}")


def _version_causes(versions: list[str], field: str) -> Iterator[Cause]:
    if not set(versions) & set(REVIEW_VERSIONS):
        yield invalid(field, versions, f"must include at least one of {', '.join(REVIEW_VERSIONS)}")
