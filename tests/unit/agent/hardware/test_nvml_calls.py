"""What surveys and polls of many cards cost in calls to the driver, and when what was queried once is queried again."""

from collections import Counter
from pathlib import Path

import pynvml
import pytest

from gpuledger.agent.hardware.nvml_card_cache import REFRESH_SURVEYS
from support.fake_nvml_cards import FakeCard
from support.hardware import FIRST, SECOND, Bench, bench, h100

CARDS = 8
LINKS = 18

SURVEY_CALLS_MAX = 1
CARD_CALLS_MAX = 2
"""A survey counts the cards, and queries memory and MIG mode of each."""

INSTANCE_CALLS_MAX = 60
"""What a survey costs in addition for a card that is divided into seven."""

POLL_CALLS_MAX = LINKS + 9
"""A poll queries each link, the MIG mode, four counters of ECC errors and one each of what else there is."""

STATIC = (
    "nvmlDeviceGetHandleByIndex",
    "nvmlDeviceGetPciInfo_v3",
    "nvmlDeviceGetUUID",
    "nvmlDeviceGetSerial",
    "nvmlDeviceGetMinorNumber",
    "nvmlDeviceGetModuleId",
    "nvmlDeviceGetName",
    "nvmlDeviceGetCudaComputeCapability",
    "nvmlDeviceGetNvLinkRemotePciInfo",
    "nvmlDeviceGetGpuInstanceProfileInfoV",
    "nvmlDeviceGetGpuInstancePossiblePlacements",
)


def address(index: int) -> str:
    return f"0000:{0x17 + index:02x}:00.0"


@pytest.fixture
def eight(tmp_path: Path) -> Bench:
    """Eight H100 with NVLinks that were surveyed and polled."""
    created = bench(tmp_path, *(h100(address(index), links=["0000:f0:00.0"] * LINKS) for index in range(CARDS)))
    created.hardware.survey()
    poll(created)
    created.nvml.calls.clear()
    return created


def poll(created: Bench) -> None:
    for card in created.nvml.cards:
        created.hardware.readings(card.bus_id[4:].lower())


def calls(created: Bench) -> Counter[str]:
    """The calls since this was last used; the events that come from surveys are none of their own."""
    found = Counter(created.nvml.calls)
    created.nvml.calls.clear()
    return found


def is_static(created: Bench) -> bool:
    """Whether a survey queries nothing that cannot change."""
    created.nvml.calls.clear()
    created.hardware.survey()
    return not set(STATIC) & set(created.nvml.calls)


def test_a_survey_between_polls_queries_only_what_may_change(eight: Bench) -> None:
    whole = eight.hardware.survey()
    found = calls(eight)
    assert found.total() <= SURVEY_CALLS_MAX + CARDS * CARD_CALLS_MAX, found
    assert len(whole.cards[0].nvlinks) == LINKS
    assert whole.driver_version


def test_a_poll_has_a_bounded_number_of_calls(eight: Bench) -> None:
    poll(eight)
    found = calls(eight)
    assert found.total() <= CARDS * POLL_CALLS_MAX, found


def test_a_survey_without_a_poll_since_the_last_one_queries_the_links(eight: Bench) -> None:
    eight.hardware.survey()
    calls(eight)
    eight.card(address(0)).links[3] = None
    assert len(eight.hardware.survey().cards[0].nvlinks) == LINKS - 1
    assert calls(eight)["nvmlDeviceGetNvLinkState"] == CARDS * LINKS


def test_a_survey_of_divided_cards_has_a_bounded_number_of_calls(eight: Bench) -> None:
    for card in eight.nvml.cards:
        eight.hardware.set_mig(card.bus_id[4:].lower(), enabled=True)
        for start in range(7):
            eight.hardware.create_instance(card.bus_id[4:].lower(), "1g.10gb", start)
    eight.hardware.survey()
    poll(eight)
    calls(eight)
    assert [len(card.instances) for card in eight.hardware.survey().cards] == [7] * CARDS
    found = calls(eight)
    assert found.total() <= SURVEY_CALLS_MAX + CARDS * (CARD_CALLS_MAX + INSTANCE_CALLS_MAX), found


@pytest.mark.parametrize("code", [pynvml.NVML_ERROR_GPU_IS_LOST, pynvml.NVML_ERROR_RESET_REQUIRED])
@pytest.mark.parametrize("by", ["survey", "poll"])
def test_a_card_that_was_reset_is_queried_anew(eight: Bench, code: int, by: str) -> None:
    card = eight.card(address(2))
    card.error = code
    if by == "survey":
        assert eight.hardware.survey().cards[2].uuid is None
    else:
        with pytest.raises(Exception, match=address(2)):
            eight.hardware.readings(address(2))
    card.error, card.serial = 0, "another"
    assert eight.hardware.survey().cards[2].serial == "another"
    assert is_static(eight)


def test_a_driver_that_was_loaded_again_is_queried_anew(eight: Bench) -> None:
    eight.nvml.nvmlShutdown()
    assert eight.hardware.survey().driver_missing
    eight.nvml.driver = "580.95.05"
    for card in eight.nvml.cards:
        card.serial = "another"
    found = eight.hardware.survey()
    assert found.driver_version == "580.95.05"
    assert {card.serial for card in found.cards} == {"another"}


def test_cards_that_the_bus_shows_otherwise_are_queried_anew(eight: Bench) -> None:
    eight.card(address(1)).serial = "another"
    node = eight.sysfs / "bus/pci/devices" / address(1) / "numa_node"
    node.write_text("1\n")
    card = eight.hardware.survey().cards[1]
    assert (card.serial, card.numa_node) == ("another", 1)


def test_a_card_whose_mig_mode_is_set_is_queried_anew(eight: Bench) -> None:
    eight.card(address(1)).serial = "another"
    eight.hardware.set_mig(address(1), enabled=True)
    assert eight.hardware.survey().cards[1].serial == "another"


def test_every_card_is_queried_anew_now_and_then(eight: Bench) -> None:
    eight.card(address(1)).serial = "another"
    for _ in range(REFRESH_SURVEYS):
        found = eight.hardware.survey()
    assert found.cards[1].serial == "another"


def test_links_that_a_card_does_not_have_are_not_queried_again(tmp_path: Path) -> None:
    created = bench(tmp_path, h100(FIRST, links=[f"0000{SECOND}", None]), FakeCard("00000000:65:00.0", "GPU-2"))
    created.hardware.survey()
    poll(created)
    calls(created)
    poll(created)
    assert calls(created)["nvmlDeviceGetNvLinkState"] == 2


def test_links_that_mig_mode_hid_are_queried_after_it(tmp_path: Path) -> None:
    created = bench(tmp_path, h100(FIRST, links=[], mig=(1, 1)))
    assert created.hardware.survey().cards[0].nvlinks == ()
    card = created.card(FIRST)
    card.links, card.mig = [f"0000{SECOND}"], (0, 0)
    assert created.hardware.survey().cards[0].nvlinks == (SECOND,)
