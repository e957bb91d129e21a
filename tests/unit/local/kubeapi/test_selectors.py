"""Selectors read as Kubernetes reads them: a misread selector deletes other objects."""

import pytest

from gpuledger.edge.kube.schema.causes import Object
from gpuledger.local.kubeapi.errors import ApiError
from gpuledger.local.kubeapi.resources import ServedResource, Strategy
from gpuledger.local.kubeapi.selectors import FieldSelector, LabelMatcher

LABELS = {"tier": "a", "size": "5", "example.com/in": "", "in": "x"}


@pytest.mark.parametrize(
    ("text", "matches"),
    [
        ("", True),
        ("tier=a", True),
        ("tier==a", True),
        ("tier = a , size", True),
        ("tier!=a", False),
        ("absent!=a", True),
        ("tier in (a,b)", True),
        ("tier in (b, c)", False),
        ("tier notin (b)", True),
        ("tier notin (a)", False),
        ("absent notin (a)", True),
        ("tier", True),
        ("!tier", False),
        ("!absent", True),
        ("! absent", True),
        ("size>4", True),
        ("size>5", False),
        ("size<6,tier=a", True),
        ("tier>1", False),
        ("absent>1", False),
        ("example.com/in=", True),
        ("example.com/in in ()", True),
        ("tier in ()", False),
        ("absent in ()", False),
        ("tier notin ()", True),
        ("absent notin ( )", True),
        ("example.com/in notin ()", False),
        ("tier notin (", None),
        ("example.com/in in (,a)", True),
        ("in in (x)", True),
        ("in", True),
        ("tier in (a", None),
        ("tier=not a label", None),
        ("-=x", None),
        ("tier in", None),
        ("tier in ((a))", None),
        ("tier,", None),
        (",tier", None),
        ("=a", None),
        ("tier=a=b", None),
        ("size>x", None),
        ("tier=" + "x" * 64, None),
        ("a b", None),
    ],
)
def test_a_label_selector_matches_or_is_refused(text: str, matches: bool | None) -> None:
    if matches is None:
        with pytest.raises(ApiError) as refused:
            LabelMatcher.parse(text)
        assert refused.value.code == 400
    else:
        assert LabelMatcher.parse(text).matches(LABELS) is matches


class _Phased(Strategy):
    def field_labels(self, obj: Object) -> dict[str, str]:
        return {"status.phase": obj.get("status", {}).get("phase", "")}


PHASED = ServedResource("", "v1", "Pod", "pods", "pod", True, strategy=_Phased())
PLAIN = ServedResource("", "v1", "ConfigMap", "configmaps", "configmap", True)
CLUSTER = ServedResource("x.io", "v1", "Thing", "things", "thing", False, is_custom=True)
POD = {"metadata": {"name": "a", "namespace": "n"}, "status": {"phase": "x,y=z\\"}}


@pytest.mark.parametrize(
    ("text", "matches"),
    [
        ("", True),
        ("metadata.name=a", True),
        ("metadata.name==a,metadata.namespace=n", True),
        ("metadata.name!=a", False),
        ("status.phase!=", True),
        (r"status.phase=x\,y\=z\\", True),
        (",metadata.name=a,", True),
        ("metadata.name", None),
        ("metadata.name=a=b", None),
        (r"metadata.name=\a", None),
        ("spec.nodeName=a", None),
    ],
)
def test_a_field_selector_matches_or_is_refused(text: str, matches: bool | None) -> None:
    if matches is None:
        with pytest.raises(ApiError) as refused:
            FieldSelector.parse(text, PHASED)
        assert refused.value.code == 400
    else:
        assert FieldSelector.parse(text, PHASED).matches(POD) is matches


def test_only_known_fields_select() -> None:
    with pytest.raises(ApiError, match="not a known field selector"):
        FieldSelector.parse("data.k=v", PLAIN)
    with pytest.raises(ApiError, match="field label not supported"):
        FieldSelector.parse("metadata.namespace=n", CLUSTER)
