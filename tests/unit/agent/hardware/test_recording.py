"""Recordings of machines: made, written, read and played."""

from pathlib import Path

import orjson
import pynvml
import pytest

from gpuledger.agent.hardware.errors import CardLostError, DriverMissingError, UnsupportedError
from gpuledger.agent.hardware.recorded import RecordedHardware
from gpuledger.agent.hardware.recording import (
    SAMPLES_MAX,
    Recording,
    RecordingError,
    read_recording,
    record,
    write_recording,
)
from support.hardware import FIRST, SECOND, Bench, bench

CORRECTED = (pynvml.NVML_MEMORY_ERROR_TYPE_CORRECTED, pynvml.NVML_VOLATILE_ECC)


@pytest.fixture
def replaced(tmp_path: Path) -> Bench:
    return bench(tmp_path)


def recorded(replaced: Bench, **options: object) -> Recording:
    return record(replaced.hardware, anonymous=False, **options)  # type: ignore[arg-type]


def counting_up(replaced: Bench, moments: int) -> Recording:
    """A recording in which a card has one more error at each moment."""
    errors = iter(range(moments))
    replaced.card(FIRST).ecc = {CORRECTED: next(errors)}
    return recorded(
        replaced, moments=moments, pause=lambda: setattr(replaced.card(FIRST), "ecc", {CORRECTED: next(errors)})
    )


def test_a_document_holds_all_of_a_recording(replaced: Bench) -> None:
    replaced.hardware.set_mig(FIRST, enabled=True)
    replaced.hardware.create_instance(FIRST, "3g.40gb", 4)
    recording = recorded(replaced, note="two H100 of a test")
    document = write_recording(recording)
    assert read_recording(document) == recording
    samples = orjson.loads(document)
    assert (samples["version"], samples["note"]) == (1, "two H100 of a test")
    assert samples["survey"]["cards"][0]["instances"][0]["profile"] == "3g.40gb"


def test_readings_go_on_with_each_poll_and_stay_at_the_last(replaced: Bench) -> None:
    played = RecordedHardware(counting_up(replaced, 3))
    assert [played.readings(FIRST).ecc_corrected_volatile for _ in range(5)] == [0, 1, 2, 2, 2]


def test_polls_at_one_card_are_none_at_another(replaced: Bench) -> None:
    played = RecordedHardware(counting_up(replaced, 2))
    played.readings(SECOND)
    assert played.readings(FIRST).ecc_corrected_volatile == 0


def test_a_card_that_did_not_answer_does_not(replaced: Bench) -> None:
    replaced.card(FIRST).error = pynvml.NVML_ERROR_GPU_IS_LOST
    played = RecordedHardware(read_recording(write_recording(recorded(replaced))))
    with pytest.raises(CardLostError):
        played.readings(FIRST)
    with pytest.raises(CardLostError):
        played.set_mig(FIRST, enabled=True)
    played.readings(SECOND)


def test_a_card_that_was_lost_meanwhile_is_lost_again(replaced: Bench) -> None:
    def lose() -> None:
        replaced.card(FIRST).error = pynvml.NVML_ERROR_GPU_IS_LOST

    played = RecordedHardware(recorded(replaced, moments=2, pause=lose))
    played.readings(FIRST)
    with pytest.raises(CardLostError):
        played.readings(FIRST)


def test_a_machine_without_a_driver(replaced: Bench) -> None:
    replaced.nvml.init_error = pynvml.NVML_ERROR_DRIVER_NOT_LOADED
    played = RecordedHardware(recorded(replaced))
    assert played.survey().driver_missing
    for call in (played.readings, played.users, lambda address: played.set_mig(address, enabled=True)):
        with pytest.raises(DriverMissingError):
            call(FIRST)


def test_users_that_nobody_could_report(replaced: Bench) -> None:
    for kind in ("Compute", "Graphics"):
        replaced.nvml.errors[f"nvmlDeviceGet{kind}RunningProcesses_v3"] = pynvml.NVML_ERROR_NO_PERMISSION
    with pytest.raises(UnsupportedError):
        RecordedHardware(recorded(replaced)).users(FIRST)


def test_nothing_of_an_anonymous_recording_names_the_machine(replaced: Bench) -> None:
    replaced.hardware.set_mig(FIRST, enabled=True)
    instance = replaced.hardware.create_instance(FIRST, "1g.10gb", 0)
    replaced.card(FIRST).processes = [(1, 1, "compute")]
    recording = record(replaced.hardware, anonymous=True)
    document = write_recording(recording).decode()
    real = {replaced.card(FIRST).uuid, replaced.card(SECOND).uuid, instance.uuid, replaced.card(FIRST).serial}
    assert not [name for name in real if name is not None and name in document]
    one, other = recording.survey.cards
    assert one.uuid != other.uuid
    assert recording.moments[0].users == frozenset({one.instances[0].uuid})
    assert one._replace(uuid=None, serial=None, instances=()) == replaced.hardware.survey().cards[0]._replace(
        uuid=None, serial=None, instances=()
    )


def test_what_is_done_to_it_leaves_the_recording_as_it_was(replaced: Bench) -> None:
    recording = recorded(replaced)
    played = RecordedHardware(recording)
    played.set_mig(FIRST, enabled=True)
    played.create_instance(FIRST, "1g.10gb", 0)
    assert RecordedHardware(recording).survey() == recording.survey


def test_an_instance_that_is_made_again_is_another(replaced: Bench) -> None:
    played = RecordedHardware(recorded(replaced))
    played.set_mig(FIRST, enabled=True)
    first = played.create_instance(FIRST, "1g.10gb", 0)
    played.destroy_instance(FIRST, first.uuid)
    assert played.create_instance(FIRST, "1g.10gb", 0).uuid != first.uuid


@pytest.mark.parametrize("moments", [0, -1, SAMPLES_MAX + 1])
def test_so_many_moments_are_not_recorded(replaced: Bench, moments: int) -> None:
    with pytest.raises(ValueError, match="moments"):
        recorded(replaced, moments=moments)


@pytest.mark.parametrize(
    ("old", "new", "says"),
    [
        ('"version": 1', '"version": 2', "version"),
        ('"address": "0000:17:00.0"', '"address": 17', "survey.cards.0.address"),
        ('"survey"', '"surveys"', "survey"),
        ('"serial"', '"serail"', "serail"),
        ("{", "[", "Invalid JSON"),
    ],
)
def test_what_is_no_recording_is_reported(replaced: Bench, old: str, new: str, says: str) -> None:
    document = write_recording(recorded(replaced)).decode()
    assert old in document
    with pytest.raises(RecordingError, match=says):
        read_recording(document.replace(old, new, 1).encode())
