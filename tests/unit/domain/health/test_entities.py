"""Which entities a report concerns, in the spellings that NVSentinel's monitors have for them."""

import pytest

from gpuledger.domain.health.entities import Concerned, concerned
from gpuledger.events.health import HealthEntity, NodeHealthReported

UUID = "GPU-3d7408b2-d525-643f-5bfc-45a761045e14"
CARD = (Concerned(UUID, UUID),)


def report(*entities: tuple[str, str], devices: tuple[str, ...] = ()) -> NodeHealthReported:
    return NodeHealthReported(
        monitor="syslog-health-monitor",
        check="SysLogsXIDError",
        healthy=False,
        fatal=True,
        entities=tuple(HealthEntity(type=kind, value=value) for kind, value in entities),
        devices=devices,
    )


@pytest.mark.parametrize(
    "entities",
    [
        (("PCI", "0002:00:00"), ("GPU_UUID", UUID)),
        (("GPU", "0"), ("PCI", "0002:00:00.0"), ("GPU_UUID", UUID)),
        (("GPU", UUID),),
        (("gpu_uuid", UUID),),
        (("GPU_UUID", UUID), ("GPU_UUID", UUID)),
    ],
)
def test_a_card_is_one_entity_however_it_is_named(entities: tuple[tuple[str, str], ...]) -> None:
    assert concerned(report(*entities)) == CARD


@pytest.mark.parametrize("address", ["0002:00:00", "0002:00:00.0", "00000002:00:00.0", "0002:00:00.3"])
def test_a_pci_address_counts_without_its_function(address: str) -> None:
    assert concerned(report(("PCI", address), ("GPU", "0"))) == (Concerned("PCI/0002:00:00", None),)


@pytest.mark.parametrize(
    ("address", "name"),
    [
        ("10:1C.0", "PCI/0000:10:1c"),
        ("00010000:10:1c", "PCI/10000:10:1c"),
        ("somewhere", "PCI/somewhere"),
    ],
)
def test_other_spellings_of_addresses(address: str, name: str) -> None:
    assert concerned(report(("PCI", address))) == (Concerned(name, None),)


def test_cards_that_the_agent_knows_come_before_all() -> None:
    assert concerned(report(("PCI", "0002:00:00"), devices=(UUID,))) == CARD


def test_what_names_no_card() -> None:
    assert concerned(report(("NVSWITCH", "0"), ("NVLINK", "3"))) == (
        Concerned("NVSWITCH/0", None),
        Concerned("NVLINK/3", None),
    )
    assert concerned(report(("GPU", "5"))) == (Concerned("GPU/5", None),)
    assert concerned(report()) == (Concerned("", None),)
