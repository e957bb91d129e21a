"""Recordings of machines: made, written, read and played."""

from pathlib import Path

import orjson
import pynvml
import pytest

from gpuledger.agent.hardware.errors import CardLostError, DriverMissingError, UnsupportedError
from gpuledger.agent.hardware.recorded import RecordedHardware
from gpuledger.agent.hardware.recording import (
    MOMENTS_MAX,
    Recording,
    RecordingError,
    read_recording,
    record,
    write_recording,
)
from support.hardware import FIRST, SECOND, Bench, bench

CORRECTED = (pynvml.NVML_MEMORY_ERROR_TYPE_CORRECTED, pynvml.NVML_VOLATILE_ECC)


@pytest.fixture
def made(tmp_path: Path) -> Bench:
    return bench(tmp_path)


def recorded(made: Bench, **options: object) -> Recording:
    return record(made.hardware, anonymous=False, **options)  # type: ignore[arg-type]


def counting_up(made: Bench, moments: int) -> Recording:
    """A recording in which a card has one more error at each moment."""
    errors = iter(range(moments))
    made.card(FIRST).ecc = {CORRECTED: next(errors)}
    return recorded(made, moments=moments, pause=lambda: setattr(made.card(FIRST), "ecc", {CORRECTED: next(errors)}))


def test_a_document_holds_all_of_a_recording(made: Bench) -> None:
    made.hardware.set_mig(FIRST, enabled=True)
    made.hardware.create_instance(FIRST, "3g.40gb", 4)
    recording = recorded(made, note="two H100 of a test")
    document = write_recording(recording)
    assert read_recording(document) == recording
    said = orjson.loads(document)
    assert (said["version"], said["note"]) == (1, "two H100 of a test")
    assert said["survey"]["cards"][0]["instances"][0]["profile"] == "3g.40gb"


def test_readings_go_on_with_each_look_and_stay_at_the_last(made: Bench) -> None:
    played = RecordedHardware(counting_up(made, 3))
    assert [played.readings(FIRST).ecc_corrected_volatile for _ in range(5)] == [0, 1, 2, 2, 2]


def test_looks_at_one_card_are_none_at_another(made: Bench) -> None:
    played = RecordedHardware(counting_up(made, 2))
    played.readings(SECOND)
    assert played.readings(FIRST).ecc_corrected_volatile == 0


def test_a_card_that_did_not_answer_does_not(made: Bench) -> None:
    made.card(FIRST).error = pynvml.NVML_ERROR_GPU_IS_LOST
    played = RecordedHardware(read_recording(write_recording(recorded(made))))
    with pytest.raises(CardLostError):
        played.readings(FIRST)
    with pytest.raises(CardLostError):
        played.set_mig(FIRST, enabled=True)
    played.readings(SECOND)


def test_a_card_that_was_lost_meanwhile_is_lost_again(made: Bench) -> None:
    def lose() -> None:
        made.card(FIRST).error = pynvml.NVML_ERROR_GPU_IS_LOST

    played = RecordedHardware(recorded(made, moments=2, pause=lose))
    played.readings(FIRST)
    with pytest.raises(CardLostError):
        played.readings(FIRST)


def test_a_machine_without_a_driver(made: Bench) -> None:
    made.nvml.init_error = pynvml.NVML_ERROR_DRIVER_NOT_LOADED
    played = RecordedHardware(recorded(made))
    assert played.survey().driver_missing
    for call in (played.readings, played.users, lambda address: played.set_mig(address, enabled=True)):
        with pytest.raises(DriverMissingError):
            call(FIRST)


def test_users_that_nobody_could_tell(made: Bench) -> None:
    for kind in ("Compute", "Graphics"):
        made.nvml.errors[f"nvmlDeviceGet{kind}RunningProcesses_v3"] = pynvml.NVML_ERROR_NO_PERMISSION
    with pytest.raises(UnsupportedError):
        RecordedHardware(recorded(made)).users(FIRST)


def test_nothing_of_an_anonymous_recording_names_the_machine(made: Bench) -> None:
    made.hardware.set_mig(FIRST, enabled=True)
    instance = made.hardware.create_instance(FIRST, "1g.10gb", 0)
    made.card(FIRST).processes = [(1, 1, "compute")]
    recording = record(made.hardware, anonymous=True)
    document = write_recording(recording).decode()
    real = {made.card(FIRST).uuid, made.card(SECOND).uuid, instance.uuid, made.card(FIRST).serial}
    assert not [name for name in real if name is not None and name in document]
    one, other = recording.survey.cards
    assert one.uuid != other.uuid
    assert recording.moments[0].users == frozenset({one.instances[0].uuid})
    assert one._replace(uuid=None, serial=None, instances=()) == made.hardware.survey().cards[0]._replace(
        uuid=None, serial=None, instances=()
    )


def test_what_is_done_to_it_leaves_the_recording_as_it_was(made: Bench) -> None:
    recording = recorded(made)
    played = RecordedHardware(recording)
    played.set_mig(FIRST, enabled=True)
    played.create_instance(FIRST, "1g.10gb", 0)
    assert RecordedHardware(recording).survey() == recording.survey


def test_an_instance_that_is_made_again_is_another(made: Bench) -> None:
    played = RecordedHardware(recorded(made))
    played.set_mig(FIRST, enabled=True)
    first = played.create_instance(FIRST, "1g.10gb", 0)
    played.destroy_instance(FIRST, first.uuid)
    assert played.create_instance(FIRST, "1g.10gb", 0).uuid != first.uuid


@pytest.mark.parametrize("moments", [0, -1, MOMENTS_MAX + 1])
def test_so_many_moments_are_not_recorded(made: Bench, moments: int) -> None:
    with pytest.raises(ValueError, match="moments"):
        recorded(made, moments=moments)


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
def test_what_is_no_recording_is_told(made: Bench, old: str, new: str, says: str) -> None:
    document = write_recording(recorded(made)).decode()
    assert old in document
    with pytest.raises(RecordingError, match=says):
        read_recording(document.replace(old, new, 1).encode())
