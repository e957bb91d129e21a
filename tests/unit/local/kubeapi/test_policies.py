"""ValidatingAdmissionPolicies: which requests they match, what their expressions find, and what is refused of them."""

from copy import deepcopy
from typing import Any

import pytest

from gpuledger.local.kubeapi.admission_request import KindVersion, Question
from gpuledger.local.kubeapi.policies import Outcome, Review, outcome_of
from gpuledger.local.kubeapi.strategies.admission_policies import BindingStrategy, PolicyStrategy

Json = dict[str, Any]

WIDGETS = KindVersion("example.com", "v1", "Widget", "widgets")
OLDER = WIDGETS._replace(version="v1beta1")
RULE: Json = {"operations": ["*"], "apiGroups": ["example.com"], "apiVersions": ["v1"], "resources": ["widgets"]}
NAMESPACES: dict[str, Json] = {
    "team": {"metadata": {"name": "team", "labels": {"tier": "gold"}, "managedFields": []}},
    "other": {"metadata": {"name": "other"}},
}
USER = {"username": "eva", "groups": ["devs"]}
NO = [{"expression": "false"}]
PREFIX = "ValidatingAdmissionPolicy 'p' with binding 'b' denied request: "
NO_KEY = "expression 'object.spec.none == 1' resulted in error: no such key: none"


def widget(size: int = 1, **labels: str) -> Json:
    return {"metadata": {"name": "w", "namespace": "team", "labels": labels}, "spec": {"size": size}}


def policy(**spec: Any) -> Json:
    given = {"matchConstraints": {"resourceRules": [RULE]}, "validations": [{"expression": "object.spec.size < 5"}]}
    return {"metadata": {"name": "p"}, "spec": deepcopy(given | spec)}


def binding(*actions: str, **spec: Any) -> Json:
    given = {"policyName": "p", "validationActions": list(actions or ("Deny",))}
    return {"metadata": {"name": "b"}, "spec": given | spec}


def question(operation: str = "CREATE", **more: Any) -> Question:
    given = {"operation": operation, "version": WIDGETS, "name": "w", "namespace": "team", "user": USER}
    return Question(**given | more)


def reviewed(
    one: Json,
    obj: Json | None = None,
    old: Json | None = None,
    *,
    asked: Question | None = None,
    bound: tuple[Json, ...] = (binding(),),
) -> Outcome:
    new = widget() if obj is None and old is None else obj
    return outcome_of([one], bound, Review(asked or question(), new, old, NAMESPACES.get))


def refusal(one: Json, obj: Json | None = None, old: Json | None = None, **more: Any) -> str | None:
    found = reviewed(one, obj, old, **more).refusal
    return None if found is None else found.message.partition(PREFIX)[2]


def test_a_refusal_is_worded_as_kubernetes_does() -> None:
    found = reviewed(policy(), widget(9)).refusal
    assert found is not None
    message = PREFIX + "failed expression: object.spec.size < 5"
    assert found.status() == {
        "kind": "Status",
        "apiVersion": "v1",
        "metadata": {},
        "status": "Failure",
        "message": f'widgets.example.com "w" is forbidden: {message}',
        "reason": "Invalid",
        "details": {"name": "w", "group": "example.com", "kind": "widgets", "causes": [{"message": message}]},
        "code": 422,
    }


@pytest.mark.parametrize(
    ("reason", "code"),
    [("Invalid", 422), ("Forbidden", 403), ("Unauthorized", 401), ("RequestEntityTooLarge", 413)],
)
def test_a_reason_has_its_code(reason: str, code: int) -> None:
    found = reviewed(policy(validations=[{"expression": "false", "reason": reason}])).refusal
    assert found is not None
    assert (found.reason, found.code) == (reason, code)


@pytest.mark.parametrize(
    ("match", "more", "is_matched"),
    [
        ({}, {}, True),
        ({"resourceRules": [RULE | {"operations": ["UPDATE"]}]}, {}, False),
        ({"resourceRules": [RULE | {"resourceNames": ["w"]}]}, {}, True),
        ({"resourceRules": [RULE | {"resourceNames": ["x"]}]}, {}, False),
        ({"resourceRules": [RULE | {"resources": ["widgets/status"]}]}, {}, False),
        ({"resourceRules": [RULE | {"resources": ["widgets/status"]}]}, {"subresource": "status"}, True),
        ({"resourceRules": [RULE | {"scope": "Cluster"}]}, {}, False),
        ({"excludeResourceRules": [RULE]}, {}, False),
        ({"excludeResourceRules": [RULE | {"operations": ["DELETE"]}]}, {}, True),
        ({"excludeResourceRules": [RULE | {"resourceNames": ["x"]}]}, {}, True),
        ({"namespaceSelector": {"matchLabels": {"tier": "gold"}}}, {}, True),
        ({"namespaceSelector": {"matchLabels": {"tier": "gold"}}}, {"namespace": "other"}, False),
        ({"namespaceSelector": {"matchLabels": {"tier": "gold"}}}, {"namespace": "", "is_namespaced": False}, True),
        ({"objectSelector": {"matchLabels": {"app": "x"}}}, {}, False),
        ({}, {"version": OLDER}, False),
        ({}, {"version": OLDER, "others": (WIDGETS,)}, True),
        ({"matchPolicy": "Exact"}, {"version": OLDER, "others": (WIDGETS,)}, False),
        ({"excludeResourceRules": [RULE]}, {"version": OLDER, "others": (WIDGETS,)}, False),
    ],
)
def test_matching(match: Json, more: Json, is_matched: bool) -> None:
    """A binding narrows the same way as the policy's own constraints."""
    asked = question(**more)
    constrained = policy(matchConstraints={"resourceRules": [RULE], **match}, validations=NO)
    assert (refusal(constrained, asked=asked) is not None) == is_matched
    if asked.version == WIDGETS:
        everything, bound = policy(matchConstraints=EVERYTHING, validations=NO), binding(matchResources=match)
        assert (refusal(everything, asked=asked, bound=(bound,)) is not None) == is_matched


EVERYTHING: Json = {
    "resourceRules": [{"operations": ["*"], "apiGroups": ["*"], "apiVersions": ["*"], "resources": ["*/*"]}]
}


def test_an_object_selector_looks_at_what_was_and_what_is() -> None:
    one = policy(
        matchConstraints={"resourceRules": [RULE], "objectSelector": {"matchLabels": {"app": "x"}}}, validations=NO
    )
    for obj, old in ((widget(app="x"), widget()), (widget(), widget(app="x")), (None, widget(app="x"))):
        assert refusal(one, obj, old) is not None
    assert refusal(one, widget(), widget(app="y")) is None


def test_expressions_see_the_version_that_the_rule_names() -> None:
    seen = "[object.apiVersion, request.kind.version, request.requestKind.version]"
    validations = [{"expression": "false", "messageExpression": f"{seen}.join(' ')"}]
    found = refusal(policy(validations=validations), asked=question(version=OLDER, others=(WIDGETS,)))
    assert found == "example.com/v1 v1 v1beta1"


def test_a_policy_is_in_force_only_where_it_is_bound() -> None:
    assert reviewed(policy(validations=NO), bound=()) == (None, [])
    assert reviewed(policy(validations=NO), bound=(binding(policyName="q"),)) == (None, [])


def test_actions() -> None:
    message = "failed expression: false"
    for action, is_refused, warnings in (
        ("Deny", True, []),
        ("Warn", False, [f"Validation failed for ValidatingAdmissionPolicy 'p' with binding 'b': {message}"]),
        ("Audit", False, []),
    ):
        found = reviewed(policy(validations=NO), bound=(binding(action),))
        assert (found.refusal is not None, found.warnings) == (is_refused, warnings)


def test_the_first_failure_is_the_answer_and_every_one_a_warning() -> None:
    both = policy(validations=[{"expression": "false", "message": message} for message in ("first", "second")])
    assert refusal(both) == "first"
    assert [text.rpartition(": ")[2] for text in reviewed(both, bound=(binding("Warn"),)).warnings] == [
        "first",
        "second",
    ]


def test_bindings_warn_even_where_another_one_refuses() -> None:
    second = binding("Warn")
    second["metadata"]["name"] = "c"
    found = reviewed(policy(validations=NO), bound=(second, binding()))
    assert found.refusal is not None
    assert len(found.warnings) == 1


@pytest.mark.parametrize(
    ("expression", "obj", "old"),
    [
        ("object.metadata.name == 'w' && oldObject == null", widget(), None),
        ("object == null && oldObject.spec.size == 1", None, widget()),
        ("object.spec == oldObject.spec", widget(), widget(a="b")),
        ("request.userInfo.username == 'eva' && 'devs' in request.userInfo.groups", widget(), None),
        ("request.operation == 'CREATE' && request.namespace == 'team' && request.name == 'w'", widget(), None),
        ("request.resource.resource == 'widgets' && request.kind.kind == 'Widget'", widget(), None),
        ("!has(request.subResource) && request.dryRun == false && !('uid' in request)", widget(), None),
        ("namespaceObject.metadata.labels.tier == 'gold' && !has(namespaceObject.status.phase)", widget(), None),
        ("object.?spec.?none.orValue(3) == 3", widget(), None),
        ("quantity('1Gi').isGreaterThan(quantity('1Mi'))", widget(), None),
    ],
)
def test_what_expressions_see(expression: str, obj: Json | None, old: Json | None) -> None:
    assert refusal(policy(validations=[{"expression": expression}]), obj, old) is None
    assert refusal(policy(validations=[{"expression": f"!({expression})"}]), obj, old) is not None


def test_cluster_resources_have_no_namespace() -> None:
    one = policy(validations=[{"expression": "namespaceObject == null && !has(request.namespace)"}])
    assert refusal(one, asked=question(namespace="", is_namespaced=False)) is None


BROKEN = (
    "expression 'variables.broken == 1' resulted in error: composited variable \"broken\" fails to evaluate: "
    "expression 'object.spec.none' resulted in error: no such key: none"
)
VARIABLES = [
    {"name": "size", "expression": "object.spec.size"},
    {"name": "double", "expression": "variables.size * 2"},
    {"name": "broken", "expression": "object.spec.none"},
]


@pytest.mark.parametrize(
    ("expression", "expected"),
    [
        ("variables.double == 2", None),
        ("[1].all(size, size + variables.size == variables.double)", None),
        ("variables.size == 1 || variables.broken == 1", None),
        ("variables.broken == 1 || variables.size == 1", None),
        ("variables.size == 1 ? true : variables.broken == 1", None),
        ("variables.broken == 1", BROKEN),
    ],
)
def test_variables_are_evaluated_where_they_are_needed(expression: str, expected: str | None) -> None:
    assert refusal(policy(variables=VARIABLES, validations=[{"expression": expression}])) == expected


@pytest.mark.parametrize(
    ("validation", "expected"),
    [
        ({"message": " too large "}, "too large"),
        ({"messageExpression": "'size ' + string(object.spec.size)", "message": "m"}, "size 9"),
        ({"messageExpression": "' '", "message": "m"}, "m"),
        ({"messageExpression": "'a\\nb'", "message": "m"}, "m"),
        ({"messageExpression": "object.spec.none", "message": "m"}, "m"),
        ({"messageExpression": "variables.double == 18 ? 'twice' : ''"}, "twice"),
        ({}, "failed expression: object.spec.size < 5"),
    ],
)
def test_messages(validation: Json, expected: str) -> None:
    one = policy(variables=VARIABLES, validations=[{"expression": "object.spec.size < 5", **validation}])
    assert refusal(one, widget(9)) == expected


@pytest.mark.parametrize(
    ("conditions", "failure_policy", "expected"),
    [
        (["request.userInfo.username == 'eva'"], "Fail", "failed expression: false"),
        (["request.userInfo.username == 'eva'", "object.spec.size > 1"], "Fail", None),
        (["object.spec.none == 1"], "Fail", NO_KEY),
        (["object.spec.none == 1"], "Ignore", None),
        (["object.spec.none == 1", "false"], "Fail", None),
    ],
)
def test_match_conditions(conditions: list[str], failure_policy: str, expected: str | None) -> None:
    named = [{"name": f"c{index}", "expression": text} for index, text in enumerate(conditions)]
    assert refusal(policy(matchConditions=named, failurePolicy=failure_policy, validations=NO)) == expected


@pytest.mark.parametrize("part", ["validations", "auditAnnotations"])
def test_what_cannot_be_evaluated_fails_as_the_policy_says(part: str) -> None:
    one = {"expression": "object.spec.none == 1", "key": "k", "valueExpression": "object.spec.none == 1"}
    assert refusal(policy(**{part: [one]})) == NO_KEY
    assert refusal(policy(**{part: [one]}, failurePolicy="Ignore")) is None


def test_an_annotation_that_cannot_be_made_refuses_whatever_the_actions_are() -> None:
    bound = (binding("Audit"),)
    for value, is_refused in (("object.metadata.name", False), ("null", False), ("object.spec.size", True)):
        one = policy(auditAnnotations=[{"key": "k", "valueExpression": value}])
        assert (refusal(one, bound=bound) is not None) == is_refused


def causes(**spec: Any) -> list[str]:
    obj, strategy = policy(**spec), PolicyStrategy()
    strategy.default(obj)
    return [cause.field.removeprefix("spec.") for cause in strategy.validate(obj)]


@pytest.mark.parametrize(
    ("expression", "message"),
    [
        ("", "expression is not specified"),
        ("object.spec. <", "Syntax error"),
        ("subject == 1", "undeclared reference to 'subject'"),
        ("params == null", "undeclared reference to 'params'"),
        ("shout(object.spec.url)", "undeclared reference to 'shout'"),
        ("authorizer.group('').check('get').allowed()", "does not implement the CEL variable authorizer"),
        ("isURL(object.spec.url)", "does not implement the CEL function isURL"),
        ("request.uid == ''", "undefined field 'uid'"),
        ("request.resource.kind == ''", "undefined field 'kind'"),
        ("variables.none", "undefined field 'none'"),
        ("variables['size'] == 1", "undeclared reference to 'variables'"),
        ("[1].all(variables, variables.size > 0)", "does not implement macros that bind the name variables"),
        ("'yes'", "must evaluate to bool"),
    ],
)
def test_what_is_wrong_with_an_expression(expression: str, message: str) -> None:
    obj = policy(variables=VARIABLES, validations=[{"expression": expression}])
    (cause,) = PolicyStrategy().validate(obj)
    assert cause.field == "spec.validations[0].expression"
    assert message in cause.message


def rules(**rule: Any) -> Json:
    return {"matchConstraints": {"resourceRules": [RULE | rule]}}


def validation(**more: Any) -> Json:
    return {"validations": [{"expression": "true", **more}]}


def conditions(*texts: str) -> Json:
    return {"matchConditions": [{"name": "c", "expression": text} for text in texts], "variables": VARIABLES}


@pytest.mark.parametrize(
    ("spec", "fields"),
    [
        ({"variables": VARIABLES}, []),
        ({"matchConstraints": None}, ["matchConstraints"]),
        ({"matchConstraints": {}}, ["matchConstraints.resourceRules"]),
        (rules(apiVersions=[]), ["matchConstraints.resourceRules[0].apiVersions"]),
        (rules(operations=["READ"]), ["matchConstraints.resourceRules[0].operations[0]"]),
        (rules(apiGroups=["*", "apps"]), ["matchConstraints.resourceRules[0].apiGroups"]),
        (rules(scope="Everywhere"), ["matchConstraints.resourceRules[0].scope"]),
        (rules(resourceNames=["a", "a"]), ["matchConstraints.resourceRules[0].resourceNames[1]"]),
        ({"matchConstraints": {"resourceRules": [RULE], "matchPolicy": "Close"}}, ["matchConstraints.matchPolicy"]),
        ({"failurePolicy": "Warn"}, ["failurePolicy"]),
        ({"paramKind": {"apiVersion": "v1", "kind": "ConfigMap"}}, ["paramKind"]),
        ({"validations": []}, ["validations", "auditAnnotations"]),
        ({"validations": [], "auditAnnotations": [{"key": "k", "valueExpression": "'a'"}]}, []),
        (validation(messageExpression="1"), ["validations[0].messageExpression"]),
        (validation(message=" "), ["validations[0].message"]),
        (validation(message="a\nb"), ["validations[0].message"]),
        (validation(reason="Teapot"), ["validations[0].reason"]),
        ({"variables": [{"name": "a", "expression": "variables.a"}]}, ["variables[0].expression"]),
        ({"variables": [{"name": "in", "expression": "1"}]}, ["variables[0].name"]),
        ({"variables": [VARIABLES[0], VARIABLES[0]]}, ["variables[1].name"]),
        (conditions("variables.size == 1"), ["matchConditions[0].expression"]),
        (conditions("true", "true"), ["matchConditions[1].name"]),
        ({"matchConditions": [{"expression": "true"}]}, ["matchConditions[0].name"]),
        ({"auditAnnotations": [{"key": "k", "valueExpression": "1"}]}, ["auditAnnotations[0].valueExpression"]),
        ({"auditAnnotations": [{"valueExpression": "'a'"}]}, ["auditAnnotations[0].key"]),
    ],
)
def test_what_is_wrong_with_a_policy(spec: Json, fields: list[str]) -> None:
    assert causes(**spec) == fields


SPACED: Json = {"objectSelector": {"matchLabels": {"a b": "c"}}}


@pytest.mark.parametrize(
    ("spec", "fields"),
    [
        ({}, []),
        ({"matchResources": {}}, []),
        ({"policyName": ""}, ["policyName"]),
        ({"policyName": "P"}, ["policyName"]),
        ({"paramRef": {"name": "x", "parameterNotFoundAction": "Deny"}}, ["paramRef"]),
        ({"validationActions": []}, ["validationActions"]),
        ({"validationActions": ["Refuse"]}, ["validationActions[0]"]),
        ({"validationActions": ["Deny", "Deny"]}, ["validationActions[1]"]),
        ({"validationActions": ["Deny", "Warn"]}, ["validationActions"]),
        ({"matchResources": SPACED}, ["matchResources.objectSelector.matchLabels"]),
    ],
)
def test_what_is_wrong_with_a_binding(spec: Json, fields: list[str]) -> None:
    obj = binding(**spec)
    strategy = BindingStrategy()
    strategy.default(obj)
    assert [cause.field for cause in strategy.validate(obj)] == [f"spec.{field}" for field in fields]


def test_defaults() -> None:
    obj = policy()
    PolicyStrategy().default(obj)
    assert obj["spec"]["failurePolicy"] == "Fail"
    assert obj["spec"]["matchConstraints"] == {
        "matchPolicy": "Equivalent",
        "namespaceSelector": {},
        "objectSelector": {},
        "resourceRules": [RULE | {"scope": "*"}],
    }
