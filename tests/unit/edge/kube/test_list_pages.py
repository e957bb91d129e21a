"""Lists in pages: the cost of later pages, and their content while objects change."""

import pytest

from gpuledger.edge.kube.schema.causes import Object
from gpuledger.local.kubeapi import reading, store
from gpuledger.local.kubeapi.builtin import BUILTIN
from gpuledger.local.kubeapi.errors import ApiError
from gpuledger.local.kubeapi.options import ListOptions
from gpuledger.local.kubeapi.registry import ResourceRegistry, Target
from gpuledger.local.kubeapi.store import SNAPSHOTS_KEPT_MAX, Store, key_of

NODES, LIMIT, PAGES = ("", "nodes"), 50, 20
LOOKS_MAX = 40
"""A place in a list is found by halving it; each look makes an object's key once."""


def node(number: int, **labels: str) -> Object:
    return {"metadata": {"name": f"n{number:04d}", "labels": labels}}


@pytest.fixture
def nodes() -> Store:
    nodes = Store()
    for number in range(LIMIT * PAGES):
        nodes.put(NODES, node(number))
    return nodes


def target() -> Target:
    resource = ResourceRegistry(BUILTIN).of_group(*NODES)
    assert resource is not None
    return Target(resource, "", "", "")


def page(nodes: Store, token: str = "", labels: str = "") -> reading.ListPage:
    return reading.list_page(nodes, target(), ListOptions(limit=LIMIT, continue_token=token, labels=labels))


def names(objects: list[Object]) -> list[str]:
    return [one["metadata"]["name"] for one in objects]


def test_a_further_page_does_not_go_through_all_objects(nodes: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    listed: list[Object] = []

    def looking(obj: Object) -> store.ObjectKey:
        listed.append(obj)
        return key_of(obj)

    monkeypatch.setattr(reading, "key_of", looking)
    monkeypatch.setattr(store, "key_of", looking)
    found, token = [], ""
    for number in range(PAGES):
        nodes.put(NODES, node(0))
        listed.clear()
        one = page(nodes, token)
        token = one.metadata.get("continue", "")
        found += names(one.objects)
        assert number == 0 or len(listed) <= LOOKS_MAX
        assert one.metadata.get("remainingItemCount", 0) == LIMIT * (PAGES - number - 1)
    assert found == names(nodes.collection(NODES).objects())
    assert not token


def test_pages_show_one_moment(nodes: Store) -> None:
    first = page(nodes)
    nodes.put(NODES, node(60, changed="yes"))
    nodes.remove(NODES, node(61))
    nodes.put(NODES, {"metadata": {"name": "n0061-later"}})
    second = page(nodes, first.metadata["continue"])
    assert names(second.objects) == [f"n{number:04d}" for number in range(LIMIT, 2 * LIMIT)]
    assert not second.objects[10]["metadata"]["labels"]
    assert names(page(nodes, labels="changed").objects) == ["n0060"]


def test_many_lists_at_once_are_all_right(nodes: Store) -> None:
    begun = []
    for number in range(SNAPSHOTS_KEPT_MAX + 2):
        begun.append(page(nodes).metadata["continue"])
        nodes.remove(NODES, node(LIMIT + number))
    for number, token in enumerate(begun):
        expected = [f"n{one:04d}" for one in range(LIMIT + number, 2 * LIMIT + number)]
        assert names(page(nodes, token).objects) == expected


def test_a_kept_list_expires_with_its_revision() -> None:
    nodes = Store(changes_kept=10)
    for number in range(LIMIT + 1):
        nodes.put(NODES, node(number))
    token = page(nodes).metadata["continue"]
    for _ in range(30):
        nodes.put(NODES, node(0))
    with pytest.raises(ApiError) as expired:
        page(nodes, token)
    assert expired.value.code == 410


def test_what_is_read_otherwise_now_is_shown_so_in_further_pages(nodes: Store) -> None:
    token = page(nodes).metadata["continue"]
    amended = nodes.collection(NODES).objects()[LIMIT] | {"spec": {"new": "default"}}
    nodes.amend(NODES, amended)
    assert page(nodes, token).objects[0]["spec"] == {"new": "default"}
