"""The parser of PromQL and the check of labels that tests of rules and dashboards rely on."""

import orjson
import pytest

from support.promql import Matcher, PromqlError, Selector, parse, selectors
from support.promql_labels import problems
from support.served_metrics import PLAIN_MONITOR, RECORDED, of_exporters, scraped

SERIES = {
    "a": {"node", "pod"},
    "b": {"node", "Hostname"},
    "slow_bucket": {"le", "node"},
    "others": None,
}
VALUES = {"node": {"w1", "w2"}}


@pytest.mark.parametrize(
    ("text", "metrics"),
    [
        ("a", ["a"]),
        ('rate(a{node=~"w.+",pod!=""}[5m]) / on (node) group_left (x) b offset 1h > bool 0.5', ["a", "b"]),
        ("max(a) by (node) - -1 * (b)", ["a", "b"]),
        ("topk(3, a) unless b or others", ["a", "b", "others"]),
        ("max_over_time(rate(a[5m])[1h:5m])", ["a"]),
        ("a # the rest of the line", ["a"]),
        ("2 * 86400 < time()", []),
    ],
)
def test_selectors_of_an_expression(text: str, metrics: list[str]) -> None:
    assert [one.metric for one in selectors(parse(text))] == metrics


def test_quotes_in_a_matcher_end_nothing() -> None:
    (found,) = selectors(parse(r'a{pod="x\"}", node!~"y"}'))
    assert found == Selector("a", (Matcher("pod", "=", 'x"}'), Matcher("node", "!~", "y")))


@pytest.mark.parametrize("text", ["", "a{", "a{pod}", "sum by node (a)", "a b", "(a", "a[5m", "a == ", "a $ b", "{}"])
def test_what_is_no_promql_is_refused(text: str) -> None:
    with pytest.raises(PromqlError):
        parse(text)


@pytest.mark.parametrize(
    "text",
    [
        'sum by (node, pod) (a{node=~"w1|w2"})',
        'a{node="$node"} or b{Hostname=""}',
        'label_replace(b, "at", "$1", "Hostname", "(.+)") and on (node) a',
        'sum by (at) (label_join(b, "at", ";", "node", "Hostname"))',
        "histogram_quantile(0.9, sum by (le) (rate(slow_bucket[5m])))",
        "a * on (node) group_left (Hostname) b",
        "max by (node) (a) < 14 * 86400 and max by (node) (b) - time() < 1",
        'sum without (pod) (a) / sum by (node) (others{anything="x"})',
        "absent(a) == 1",
    ],
)
def test_labels_that_there_are(text: str) -> None:
    assert problems(parse(text), SERIES, VALUES) == []


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("c", "nobody serves c"),
        ('a{uuid="x"}', "a has no label uuid"),
        ('a{node=~"w1|w3"}', "node of a is never w3"),
        ("sum by (Hostname) (a)", "what sum takes has no label Hostname"),
        ("sum by (pod) (sum by (node) (a))", "what sum takes has no label pod"),
        ("max by (node) (a) and on (node, pod) a", "what stands left of and has no label pod"),
        ("a / on (Hostname) b", "what stands left of / has no label Hostname"),
        ("a * on (node) group_left (le) b", "the single side of * has no label le"),
        ("a * on (node) group_right (le) b", "the single side of * has no label le"),
        ("a / b", "/ matches by all labels, and its sides have other ones"),
        ('label_replace(a, "x", "$1", "Hostname", "")', "what label_replace takes has no label Hostname"),
        ('label_join(a, "x", ";", "node", "y")', "what label_join takes has no label y"),
        ("histogram_quantile(0.9, a)", "what histogram_quantile takes has no label le"),
    ],
)
def test_labels_that_there_are_not(text: str, problem: str) -> None:
    assert problems(parse(text), SERIES, VALUES) == [problem]


def test_a_function_that_nobody_looked_at_is_refused() -> None:
    with pytest.raises(PromqlError, match="add it to FUNCTIONS"):
        problems(parse("sort_by_label(a)"), SERIES)


@pytest.mark.shared
@pytest.mark.skipif(not RECORDED.is_dir(), reason=f"no recordings in {RECORDED}")
def test_scraping_gives_series_the_labels_that_a_prometheus_was_recorded_with() -> None:
    series = scraped(of_exporters(RECORDED), PLAIN_MONITOR)
    answers = [orjson.loads(path.read_bytes()) for path in sorted(RECORDED.glob("prometheus-query-*.json"))]
    recorded = [one["metric"] for answer in answers for one in answer["data"]["result"]]
    assert recorded
    for labels in recorded:
        assert labels.keys() - {"__name__"} <= series[labels["__name__"]]
    assert {"exported_pod", "exported_namespace", "Hostname", "hostname"} <= series["DCGM_FI_DEV_GPU_UTIL"]
