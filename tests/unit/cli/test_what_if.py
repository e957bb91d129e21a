"""`gpuledger what-if`: reading the manifest, the answer of admission, and the differences."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from gpuledger.api.kinds import MODULE_CONFIG
from gpuledger.cli.commands.what_if_manifest import read_manifest
from gpuledger.cli.errors import CliError, ExitCode
from gpuledger.cli.render import Console
from gpuledger.cli.render.what_if_page import what_if_page
from gpuledger.events.pool import PoolDefined
from gpuledger.events.settings import SettingsChanged
from gpuledger.tools.whatif.document import NOT_IN_FORCE, NOTHING, differences_document, notes
from gpuledger.tools.whatif.pool import Manifest
from gpuledger.tools.whatif.refusals import admission_notes
from support.hypothetical import MIG, compare, left_and_came_back
from support.pools import MET, PoolsLog, applied, marked, pool

POOL = "team-a/a"
HEAD = "apiVersion: gpu.deckhouse.io/v1alpha1\nkind: GPUPool\n"
NAMED = "metadata: {name: a, namespace: team-a}\n"
SPEC = "spec: {resource: {unit: Card}}\n"
GOOD = HEAD + NAMED + SPEC
CLUSTER = GOOD.replace("GPUPool", "ClusterGPUPool").replace(", namespace: team-a", "")
JSON = (
    '{"apiVersion": "gpu.deckhouse.io/v1alpha1", "kind": "ClusterGPUPool", "metadata": {"name": "a"}, '
    '"spec": {"resource": {"unit": "Card"}}}'
)
LIST = '{"apiVersion": "v1", "kind": "List", "items": [%s]}'
GOLD: dict[str, Any] = {"requires_annotation": False, "auto_approve": {"labels": {"tier": "gold"}}}

Reader = Callable[..., Manifest]


@pytest.fixture
def reading(tmp_path: Path) -> Reader:
    """Reads a manifest from a file."""

    def read(text: str, namespace: str | None = None) -> Manifest:
        path = tmp_path / "new.yaml"
        path.write_text(text)
        return read_manifest(str(path), namespace)

    return read


@pytest.mark.parametrize(
    ("text", "namespace", "expected"),
    [
        (GOOD, None, POOL),
        (GOOD, "team-a", POOL),
        (GOOD.replace(", namespace: team-a", ""), "team-b", "team-b/a"),
        (CLUSTER, None, "a"),
        (CLUSTER, "team-a", "a"),
        (f"---\n# made by hand\n{GOOD}---\n", None, POOL),
        (f"---\n---\n{GOOD}", None, POOL),
        (GOOD.replace("\n", "\n  ").replace("api", "  api", 1), None, POOL),
        (f'{GOOD}status: {{"capacity": {{"anything": 1}}}}', None, POOL),
        (JSON, None, "a"),
        (f"[{JSON}]", None, "a"),
        (f"- {CLUSTER}".replace("\n", "\n  "), None, "a"),
        (LIST % JSON, None, "a"),
    ],
)  # fmt: skip
def test_manifests_that_are_read(reading: Reader, text: str, namespace: str | None, expected: str) -> None:
    found = reading(text, namespace)
    assert found.hypothesis().pool == expected
    assert found.hypothesis().definition == PoolDefined(uid="-", unit="Card")
    assert found.object["spec"]["provider"] == "Nvidia"
    assert not found.hypothesis().sets_maintenance


def test_a_manifest_may_set_maintenance(reading: Reader) -> None:
    text = GOOD.replace("name: a,", "name: a, annotations: {gpu.deckhouse.io/maintenance: enabled},")
    found = reading(text).hypothesis()
    assert (found.sets_maintenance, found.definition.maintenance) == (True, "enabled")
    ended = reading(text.replace("enabled", '""')).hypothesis()
    assert (ended.sets_maintenance, ended.definition.maintenance) == (True, None)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("", "has no object. Give the manifest of one GPUPool or ClusterGPUPool."),
        (f"{GOOD}---\n{GOOD}", "has 2 objects."),
        ("{", "is no YAML: line 1, column 2: expected the node content, but found '<stream end>'"),
        ("a: b: c", "is no YAML: line 1, column 5: mapping values are not allowed here"),
        ("a", "is no manifest: couldn't get version/kind"),
        ("- a", "is no manifest: couldn't get version/kind"),
        ("[]", "has no object."),
        (LIST % f"{JSON}, {JSON}", "is a List of 2 objects. Give the manifest of one"),
        ("kind: GPUPool", "is GPUPool without an apiVersion, and what-if is about pools."),
        ("a: b", "is no object of Kubernetes, and what-if is about pools. Give a GPUPool or ClusterGPUPool"),
        (GOOD.replace("GPUPool", "GPUDevice"), "is GPUDevice of gpu.deckhouse.io/v1alpha1, and what-if"),
        (GOOD.replace("v1alpha1", "v1"), "is GPUPool of gpu.deckhouse.io/v1, and what-if"),
        (GOOD.replace("{name: a, namespace: team-a}", "[]"), "is no GPUPool: GPUPool in version"),
        (GOOD.replace("name: a, ", ""), "is a GPUPool without a name: metadata.name is missing."),
        (GOOD.replace(", namespace: team-a", ""), "is a GPUPool without a namespace. Give it with -n"),
        (GOOD.replace("team-a", "team-b"), "is in namespace team-b, not in team-a. Leave -n out"),
        (CLUSTER.replace("name: a", "name: a, namespace: b"), "metadata.namespace: Forbidden"),
        (HEAD + NAMED, "is no valid GPUPool: spec: Required value"),
        (GOOD.replace("Card}", "Card, count: 1}"), 'is no GPUPool: unknown field "spec.resource.count"'),
        (GOOD.replace("unit: Card", "unit: Card, unit: Card"), 'duplicate field "spec.resource.unit"'),
        (GOOD.replace("Card", "Slot"), 'spec.resource.unit: Unsupported value: "Slot"'),
        (GOOD.replace("Card", "MIG"), "migProfile is required with unit MIG"),
        (GOOD.replace("Card", "Card, slicesPerUnit: 65"), "spec.resource.slicesPerUnit: "),
        (GOOD.replace("}}", "}, nodeSelector: {matchLabels: {a b: c}}}"), "InvalidPool: spec.nodeSelector"),
        (GOOD.replace("name: a,", "name: a, annotations: {gpu.deckhouse.io/maintenance: soon},"),
         "would be refused: InvalidMaintenance"),
    ],
)  # fmt: skip
def test_manifests_that_are_wrong(reading: Reader, text: str, words: str) -> None:
    namespace = "team-a" if "team-b" in text else None
    with pytest.raises(CliError) as caught:
        reading(text, namespace)
    assert words in str(caught.value)
    assert caught.value.code is ExitCode.USAGE


def test_an_error_does_not_mention_unchecked_fields(reading: Reader) -> None:
    with pytest.raises(CliError, match=r'supported values: "Card", "MIG"\. Correct it'):
        reading(GOOD.replace("Card", "Slot"))


def test_a_file_that_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(CliError, match=r"cannot be read: No such file or directory\. Name a file"):
        read_manifest(str(tmp_path / "none.yaml"), None)


@pytest.fixture
def history() -> PoolsLog:
    """A pool that has n1-0; n1-1 is free and gold."""
    pools = PoolsLog().begin("n1", devices=2)
    pools.record(POOL, pool())
    pools.assign("n1-0", POOL)
    pools.record("n1-1", marked(tier="gold"))
    return pools


@pytest.mark.parametrize(
    ("text", "words"),
    [
        (GOOD, []),
        (GOOD.replace("}}", "}, nodeSelector: {matchLabels: {zone: a}}}"), []),
        (GOOD.replace("Card", "Card, slicesPerUnit: 2"),
         ["PoolImmutable: spec.resource cannot change once the pool exists. Create a new pool instead."]),
        (GOOD.replace("}}", "}, deviceSelector: {include: {pciVendors: [10de]}}}"),
         ["PoolImmutable: spec.deviceSelector cannot"]),
        (GOOD.replace("Card", "Card, slicesPerUnit: 9"), ["InvalidPool: spec.resource.slicesPerUnit: 9 is not from"]),
        (CLUSTER, ["PoolNameTaken: There is the GPUPool team-a/a already"]),
        (CLUSTER.replace("name: a", "name: b"), []),
        (CLUSTER.replace("name: a", "name: b").replace("}}", "}, backend: DRA}"), ["Backend DRA is not served yet"]),
        (GOOD.replace("}}", "}, backend: DRA}"), ["PoolImmutable: spec.backend cannot", "Backend DRA is not served"]),
    ],
)  # fmt: skip
def test_what_would_be_refused_by_what_is_there(
    reading: Reader, history: PoolsLog, text: str, words: list[str]
) -> None:
    found = reading(text)
    pool_id, definition = found.hypothesis().pool, found.hypothesis().definition
    remarks = list(admission_notes(found.resource, found.object, pool_id, definition, history.state))
    assert len(remarks) == len(words)
    for word, remark in zip(words, remarks, strict=True):
        assert remark.removeprefix("The API server would refuse this: ").startswith(word)


def test_what_is_there_already_is_not_held_against_settings_that_came_later(reading: Reader, history: PoolsLog) -> None:
    history.record(POOL, pool(slices_per_unit=2))
    history.record(MODULE_CONFIG, SettingsChanged(max_slices_per_device=1))
    found = reading(GOOD.replace("Card", "Card, slicesPerUnit: 2"))
    assert list(admission_notes(found.resource, found.object, POOL, found.hypothesis().definition, history.state)) == []


def answer_to(history: PoolsLog, definition: PoolDefined, pool_id: str = POOL) -> str:
    found = compare(history, pool_id, definition)
    document = differences_document(history.state, found.world, pool_id, {})
    return str(document["answer"])


@pytest.mark.parametrize(
    ("definition", "expected"),
    [
        (pool(), NOTHING),
        (pool(**GOLD), "1 device would join; total 1 → 2"),
        (pool(node_selector={"labels": {"zone": "a"}}), "1 device would leave; total 1 → 0"),
        (pool(slices_per_unit=2), "total 1 → 2"),
        (pool(backend="DRA"), "total 1 → unknown"),
    ],
)
def test_the_answer_in_a_line(history: PoolsLog, definition: PoolDefined, expected: str) -> None:
    assert answer_to(history, definition) == expected


def test_the_answer_counts_other_pools(history: PoolsLog) -> None:
    history.record("auto", pool(**GOLD))
    history.record("n1-1", applied("auto"))
    history.record("other", pool(**GOLD))
    gone = pool(**GOLD, include={"products": ["another"]})
    assert answer_to(history, gone, "auto") == "1 device would leave; total 1 → 0; 1 other pool would differ"
    assert answer_to(history, pool(), "new") == "total none → 0"
    assert answer_to(history, pool(maintenance="enabled", **GOLD), "team-a/b") == "total none → 0"
    history.record("auto", pool(**GOLD, maintenance="enabled"))
    assert answer_to(history, pool(**GOLD), "auto") == NOTHING


def test_the_answer_counts_changed_phases() -> None:
    history, begun = left_and_came_back()
    found = compare(history, "ns/p", pool(**MIG, node_selector={"labels": {"zone": "a"}}), since=begun)
    answer = differences_document(history.state, found.world, "ns/p", {})["answer"]
    assert answer == "1 device of it would be in another phase; total 7 → 0"


def notes_of(
    history: PoolsLog, definition: PoolDefined, *, pool_id: str = POOL, used: int = 0, since: int | None = None
) -> str:
    found = compare(history, pool_id, definition, since=since)
    return " ".join(notes(history.state, found.world, found.answered, pool_id, {pool_id: used}))


def test_notes(history: PoolsLog) -> None:
    assert notes_of(history, pool()) == ""
    assert notes_of(history, pool(), pool_id="new") == "There is no such pool; the answer assumes that it is created."
    assert "set up or release 1 device as required." in notes_of(history, pool(**GOLD))
    assert "As far as is recorded, cards cannot be divided like this: 1, such as n1-0." in notes_of(
        history, pool(unit="MIG", mig_profile="1g.5gb")
    )
    assert "request 2 units, more than" in notes_of(history, pool(), used=2)
    assert "replaces those that were recorded since then (1)" in notes_of(history, pool(), since=0)
    history.record(POOL, pool(deleting=True))
    assert "The pool is being deleted" in notes_of(history, pool())
    history.record(MODULE_CONFIG, MET.model_copy(update={"met": False}))
    assert NOT_IN_FORCE in notes_of(history, pool())


def document(history: PoolsLog, definition: PoolDefined, pool_id: str = POOL) -> dict[str, Any]:
    found = compare(history, pool_id, definition)
    head = {"pool": pool_id, "kind": "GPUPool", "file": "new.yaml", "since": "now", "notes": ["Look."]}
    return head | differences_document(history.state, found.world, pool_id, {POOL: 1})


def test_devices_that_a_pool_would_mean_and_not_have(history: PoolsLog) -> None:
    narrow, wide = pool(node_selector={"labels": {"zone": "a"}}), pool()
    assert [one["name"] for one in document(history, wide, "new")["keptOut"]] == ["n1-0", "n1-1"]
    assert document(history, wide)["keptOut"] == []
    history.record("ns/narrow", narrow)
    (first, second) = document(history, wide, "ns/narrow")["keptOut"]
    assert (first["name"], first["reasons"][0]["reason"]) == ("n1-0", "InAnotherPool")
    assert (second["name"], second["reasons"][0]["reason"]) == ("n1-1", "NotAskedFor")
    assert document(history, narrow, "ns/narrow")["keptOut"] == []


def shown(capsys: pytest.CaptureFixture[str], history: dict[str, Any]) -> list[str]:
    what_if_page(history).show(Console.standard())
    return [" ".join(line.split()) for line in capsys.readouterr().out.splitlines()]


def test_the_page(capsys: pytest.CaptureFixture[str], history: PoolsLog) -> None:
    lines = shown(capsys, document(history, pool(node_selector={"labels": {"zone": "a"}})))
    assert lines[:4] == ["Pool: GPUPool team-a/a", "From: new.yaml", "Since: now", "Note: Look."]
    assert lines[4] == "Devices that would change:"
    assert lines[7].startswith(
        f"n1-0 n1 NVIDIA A100-PCIE-40GB {POOL} (Assigned) <none> NoLongerMatching The pool's nodeSelector does not"
    )
    assert lines[8] == "Capacities that would change:"
    assert lines[11] == f"{POOL} 1 → 0 1 0 CapacityLow: False → True (NoCapacity)"
    assert lines[12] == "Answer: 1 device would leave; total 1 → 0"


def test_the_page_of_a_pool_that_there_is_not(capsys: pytest.CaptureFixture[str], history: PoolsLog) -> None:
    lines = shown(capsys, document(history, pool(unit="MIG"), "new"))
    row = next(line for line in lines if line.startswith("new "))
    assert row.startswith("new none → 0 none → 0 none → 0")
    assert "Configured: False (MIGProfileMissing)" in row
    assert "Devices that would match and not be in it:" in lines


def test_a_long_page_is_cut_with_a_count(capsys: pytest.CaptureFixture[str]) -> None:
    history = PoolsLog().begin("n1", devices=21)
    for number in range(21):
        history.record(f"n1-{number}", marked(tier="gold"))
    found = document(history, pool(**GOLD))
    lines = shown(capsys, found)
    assert "Devices that would change (20 of 21):" in lines
    assert (len(found["devices"]), sum(line.startswith("n1-") for line in lines)) == (21, 20)
