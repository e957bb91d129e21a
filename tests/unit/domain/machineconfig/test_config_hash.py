"""The hash of a configuration: what it is computed from, byte for byte, and values that may never change."""

from hashlib import sha256

import pytest

from gpuledger.domain.machineconfig.config_hash import config_hash, string_json
from gpuledger.domain.machineconfig.desired import DesiredFile, DesiredUnit

FILE = DesiredFile("/etc/a.conf", "a\n", 420, "root:root", "present")
GONE = DesiredFile("/etc/b.conf", "", 420, "root:root", "absent")
CHRONY = DesiredUnit("chronyd.service", enabled=True, state="started", mask=False)
LEFT = DesiredUnit("a.timer", enabled=None, state=None, mask=True)

JSON_OF_A = '{"content":"a\\n","mode":420,"owner":"root:root","path":"/etc/a.conf","state":"present"}'
JSON_OF_B = '{"content":"","mode":420,"owner":"root:root","path":"/etc/b.conf","state":"absent"}'
JSON_OF_CHRONY = '{"enabled":true,"mask":false,"name":"chronyd.service","state":"started"}'

EMPTY_HASH = "a703d3294b1c70a9f6c42dafc0d864f6b8a2a4c6f3e7f2e300da2d4207efc87c"
WHOLE_HASH = "796b89a328a15e0c6662f568942973805a388905b5ab22a9ff7971e10561af91"


def test_an_empty_configuration_has_its_hash_for_good() -> None:
    text = '{"files":[],"reboot":{"required":false},"systemd":{"units":[]}}'
    assert config_hash([], [], reboot_required=False) == sha256(text.encode()).hexdigest() == EMPTY_HASH


def test_a_configuration_has_its_hash_for_good() -> None:
    text = (
        f'{{"files":[{JSON_OF_A},{JSON_OF_B}],"reboot":{{"required":true}},'
        f'"systemd":{{"units":[{{"mask":true,"name":"a.timer"}},{JSON_OF_CHRONY}]}}}}'
    )
    found = config_hash([GONE, FILE], [CHRONY, LEFT], reboot_required=True)
    assert found == sha256(text.encode()).hexdigest() == WHOLE_HASH


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("", '""'),
        ('say "yes" \\ no', '"say \\"yes\\" \\\\ no"'),
        ("a\tb\r\n", '"a\\tb\\r\\n"'),
        ("\x00\x1b\x08\x0c\x7f", '"\\u0000\\u001b\\b\\f\x7f"'),
        ("<a> && b", '"\\u003ca\\u003e \\u0026\\u0026 b"'),
        ("\u2028\u2029", '"\\u2028\\u2029"'),
        ("Grüße, 日本", '"Grüße, 日本"'),
    ],
)
def test_strings_are_written_as_go_writes_them(text: str, expected: str) -> None:
    assert string_json(text) == expected.encode()


@pytest.mark.parametrize(
    "other",
    [
        FILE._replace(path="/etc/c.conf"), FILE._replace(content="b\n"), FILE._replace(mode=384),
        FILE._replace(owner="chrony:chrony"), FILE._replace(state="absent"),
    ],
)  # fmt: skip
def test_every_field_of_a_file_counts(other: DesiredFile) -> None:
    before = config_hash([FILE], [], reboot_required=False)
    assert config_hash([other], [], reboot_required=False) != before


@pytest.mark.parametrize(
    "other",
    [
        CHRONY._replace(name="ntpd.service"), CHRONY._replace(enabled=False), CHRONY._replace(enabled=None),
        CHRONY._replace(state="restarted"), CHRONY._replace(state=None), CHRONY._replace(mask=True),
    ],
)  # fmt: skip
def test_every_field_of_a_unit_counts(other: DesiredUnit) -> None:
    before = config_hash([], [CHRONY], reboot_required=False)
    assert config_hash([], [other], reboot_required=False) != before


def test_a_required_reboot_counts() -> None:
    assert config_hash([FILE], [], reboot_required=True) != config_hash([FILE], [], reboot_required=False)
