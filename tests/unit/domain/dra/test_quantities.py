"""Quantities: read exactly, and written as Kubernetes writes them."""

import pytest
from pydantic import ValidationError

from gpuledger.domain.quantities import UNIT, Quantity, parse_quantity
from gpuledger.events.slice import DeviceCapacity


@pytest.mark.parametrize(
    ("text", "nanos", "written"),
    [
        ("0", 0, "0"),
        ("1", UNIT, "1"),
        ("-1500m", -1_500_000_000, "-1500m"),
        ("1.5", 1_500_000_000, "1500m"),
        (".5", 500_000_000, "500m"),
        ("5.", 5 * UNIT, "5"),
        ("0.0000000001", 1, "1n"),
        ("-0.0000000001", -1, "-1n"),
        ("1Ki", 1024 * UNIT, "1Ki"),
        ("1536Mi", 1536 * 2**20 * UNIT, "1536Mi"),
        ("0.5Ki", 512 * UNIT, "512"),
        ("1000Ki", 1_024_000 * UNIT, "1000Ki"),
        ("1.4653Ki", 1_500_467_200_000, "1500467200u"),
        ("-1.4653Ki", -1_500_467_200_000, "-1500467200u"),
        ("2e3", 2000 * UNIT, "2e3"),
        ("1E1", 10 * UNIT, "10"),
        ("1e-3", 1_000_000, "1e-3"),
        ("100Ei", (2**63 - 1) * UNIT, "9223372036854775807"),
    ],
)
def test_a_quantity_is_read_and_written_exactly(text: str, nanos: int, written: str) -> None:
    assert (parse_quantity(text).nanos, str(parse_quantity(text))) == (nanos, written)
    assert parse_quantity(written).nanos == nanos


@pytest.mark.parametrize(("text", "whole"), [("1500m", 2), ("1", 1), ("-1500m", -1), ("0", 0)])
def test_whole_is_the_next_number_up(text: str, whole: int) -> None:
    assert parse_quantity(text).whole == whole


def test_another_amount_is_written_in_the_same_way() -> None:
    assert str(parse_quantity("4Gi").as_much(parse_quantity("1Gi").nanos)) == "1Gi"
    assert str(Quantity(2**30 * UNIT)) == "1073741824"


@pytest.mark.parametrize("text", ["..", "1.2.3", "1_000", "١", "1KI", "0x10", "1e", "e3", "NaN", "inf", [], {}, True])
def test_what_is_none_is_refused(text: object) -> None:
    with pytest.raises(ValueError, match="regular expression"):
        parse_quantity(text)


@pytest.mark.parametrize("text", ["1.2.3", "..", ".", "", "1e12345", "1 Gi", "9" * 65])
def test_no_event_holds_what_cannot_be_read(text: str) -> None:
    """A fold that met such a text would stop."""
    with pytest.raises(ValidationError):
        DeviceCapacity(value=text)


@pytest.mark.parametrize("text", ["-1500500u", "9223372036854775807", "1e-1234", "9" * 64, "+.5Ki", "5."])
def test_what_an_event_holds_can_be_read(text: str) -> None:
    assert isinstance(parse_quantity(DeviceCapacity(value=text).value), Quantity)
