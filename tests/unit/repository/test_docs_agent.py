"""docs/node-agent.md lists all health classes, settings, metrics, faults and events of the agent, and no others."""

import re
from collections.abc import Iterator

from gpuledger.agent import settings as names
from gpuledger.agent.board import Board, DeviceUnit, ResourceOffer
from gpuledger.agent.gateway.service import RESULTS
from gpuledger.agent.hardware.api import CardFacts, Survey, Unread, Unregistered
from gpuledger.agent.hardware.simulated_faults import FAULTS
from gpuledger.agent.hardware.simulated_models import CARD_MODELS
from gpuledger.agent.health import severity
from gpuledger.agent.health.severity import DEFAULT_CLASSES, OTHER, Severity
from gpuledger.agent.setup.situation import SETTLE_S
from gpuledger.agent.setup.timing import DEBOUNCE_MAX_S, DEBOUNCE_S
from gpuledger.events.allocation import AllocatedClaim, AllocatedDevices, AllocationObserved
from gpuledger.events.catalogue import registry
from gpuledger.events.publishing import SourceKind
from gpuledger.healthreports.coalescing import REPEAT_WINDOW_S
from gpuledger.healthreports.protocol import OVER_TCP, REFUSALS
from gpuledger.runtime.node_label_settings import INSTANCE_TYPE_LABEL
from gpuledger.runtime.settings import METRICS_LISTEN, NATS_FILES, NATS_URL
from gpuledger.runtime.sharing_settings import SHARING_DOMAIN
from support.agent_metrics import metrics_of_agents
from support.paths import ROOT

PAGE = (ROOT / "docs" / "node-agent.md").read_text()
ALL_OTHERS = "all others"
XID_MAX = 1023
ADDRESS = "0000:17:00.0"


def rows(heading: str) -> Iterator[list[str]]:
    """The cells of the table in a section, without its head."""
    section = re.split(r"^## ", PAGE.split(f"\n## {heading}\n")[1], maxsplit=1, flags=re.MULTILINE)[0]
    lines = [line for line in section.splitlines() if line.startswith("|")]
    for line in lines[2:]:
        yield [cell.strip() for cell in line.strip("|").split("|")]


def quoted(text: str) -> list[str]:
    return re.findall(r"`([^`]+)`", text)


def test_the_table_of_classes_is_the_agents() -> None:
    documented: dict[str, set[str]] = {}
    for name, xids, readings, _ in rows("Health"):
        documented[name.strip("`")] = {one.strip() for one in f"{xids},{readings}".split(",") if one.strip()}
    assert documented.keys() == {severity.value for severity in Severity}
    for number in range(XID_MAX + 1):
        default = DEFAULT_CLASSES.xid(number).severity.value
        if str(number) in documented[default]:
            continue
        assert default == "warning", number
        assert not any(str(number) in found for found in documented.values()), number
    named = {name for found in documented.values() for name in found if not name.isdigit()} - {ALL_OTHERS}
    for name in named:
        assert name in documented[DEFAULT_CLASSES.reading(name).severity.value]
    kinds = {value for value in vars(severity).values() if isinstance(value, str) and value.isalpha()}
    assert named == kinds - {OTHER}
    assert ALL_OTHERS in documented["warning"]


def test_every_variable_is_named_and_has_its_default() -> None:
    values = {value for name, value in vars(names).items() if name.isupper() and not name.startswith("DEFAULT")}
    variables = {value for value in values if re.fullmatch(r"(GPULEDGER|NODE|NATS)_\w+", str(value))}
    documented = {name: defaults for _, cell, defaults in rows("Settings") for name in quoted(cell)}
    assert documented.keys() == variables | {NATS_URL, METRICS_LISTEN, INSTANCE_TYPE_LABEL, SHARING_DOMAIN, *NATS_FILES}
    for variable, default in (
        (names.HARDWARE, names.DEFAULT_HARDWARE),
        (names.KUBELET_DIR, names.DEFAULT_KUBELET_DIR),
        (names.CDI_KIND, names.DEFAULT_CDI_KIND),
        (names.CDI_DIRS, names.DEFAULT_CDI_DIRS),
        (names.EXPORTER_URL, names.DEFAULT_EXPORTER_URL),
        (names.STATE_DIR, names.DEFAULT_STATE_DIR),
        (names.POD_LOGS, names.DEFAULT_POD_LOGS),
        (names.CONTAINER_LOGS, names.DEFAULT_CONTAINER_LOGS),
    ):
        assert documented[variable] == f"`{default}`"
    assert documented[names.SPOOL_MIB] == f"{names.DEFAULT_SPOOL_EVENTS}, {names.DEFAULT_SPOOL_MIB}"


def test_every_metric_is_named() -> None:
    board = Board()
    unit = DeviceUnit("GPU-1", "GPU-1", ADDRESS)
    board.put(survey=Survey((CardFacts(ADDRESS, "10de", "2330", uuid="GPU-1"),)), unfit={ADDRESS: "XID 79"})
    board.put(unregistered={ADDRESS: Unregistered("Refused", "no")}, unread={ADDRESS: (Unread("recovery", "no"),)})
    held = (AllocatedDevices(resource="gpu.deckhouse.io/a", devices=(unit.id,)),)
    claims = (AllocatedClaim(claim="c", driver="gpu.nvidia.com", pool="w1", device="gpu-0"),)
    allocation = AllocationObserved(
        node="w1", namespace="ml", pod="job", container="main", resources=held, claims=claims
    )
    board.put(offers=(ResourceOffer("gpu.deckhouse.io/a", (unit,)),), allocations=(allocation,))
    assert {name for cell, _ in rows("Monitoring") for name in quoted(cell)} == metrics_of_agents(board)


def test_every_result_of_a_report_is_named() -> None:
    (meaning,) = (text for cell, text in rows("Monitoring") if "health_reports" in cell)
    assert set(quoted(meaning)) == {"result", *RESULTS}
    text = " ".join(PAGE.split())
    assert f"those of the next {REPEAT_WINDOW_S:.0f} seconds together" in text
    documented = {name for cell, *_ in rows("Health monitors") for name in quoted(cell)}
    assert documented == {status.name for kind, (_, status) in REFUSALS.items() if kind not in OVER_TCP}


def test_every_fault_and_every_model_of_simulated_cards_is_named() -> None:
    (inject,) = (line for line in PAGE.splitlines() if line.startswith("| `agent inject"))
    assert FAULTS.keys() <= set(quoted(inject))
    (models,) = re.findall(r"^Simulated cards are (.*?), up to", PAGE, re.MULTILINE | re.DOTALL)
    assert set(quoted(models)) == CARD_MODELS.keys()


def test_every_event_of_agents_is_named() -> None:
    documented = {name for cell, _ in rows("What it reports") for name in quoted(cell)}
    ours = {
        f"{kind.AGGREGATE}.{kind.EVENT}"
        for kind in registry.models()
        if SourceKind.AGENTS in kind.PUBLISH_RULE.publishers
    }
    assert documented == {name for name in ours if not name.startswith("workload.")}


def test_the_pauses_of_setting_up_are_the_agents() -> None:
    text = " ".join(PAGE.split())
    assert f"has not changed for {DEBOUNCE_S * 1000:.0f} ms ({DEBOUNCE_MAX_S * 1000:.0f} ms at most)" in text
    assert f"withdraws its units at once; after {SETTLE_S:.0f} seconds" in text
