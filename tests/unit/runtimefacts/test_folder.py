"""Files between the runtime proxy and the agent: their order, their bounds, and what damage does."""

from datetime import UTC, datetime
from itertools import count
from pathlib import Path

import pytest

from gpuledger.events.runtime import NodeGpuCheckpointsObserved
from gpuledger.events.shares import NodeDevicesAllocated, PodShare
from gpuledger.events.sharing import NodeDevicesShared, SharedDevice
from gpuledger.runtimefacts import folder as module
from gpuledger.runtimefacts.errors import FactsFolderError, UnreadableFactError
from gpuledger.runtimefacts.folder import FACTS, NODE, FactsFolder, NodeFile, StoredFact
from gpuledger.runtimefacts.types import node_document, read_node_document

AT = datetime(2026, 1, 2, 3, 4, 5, 678, UTC)


@pytest.fixture
def folder(tmp_path: Path) -> FactsFolder:
    return FactsFolder(tmp_path / "proxy")


def fact(number: int, kind: str = "a") -> StoredFact:
    return StoredFact(kind, AT, {"number": number})


def new_id() -> str:
    return f"id{next(_IDS)}"


_IDS = count()


def numbers(folder: FactsFolder) -> list[int]:
    return [folder.read(name).data["number"] for name in folder.names()]


def test_facts_come_in_their_order_and_go_when_removed(folder: FactsFolder) -> None:
    assert folder.names() == []
    for number in range(12):
        assert folder.put(fact(number), new_id) == 0
    assert folder.read(folder.names()[0]) == fact(0)
    assert numbers(folder) == list(range(12))
    folder.remove(folder.names()[:5])
    folder.put(fact(12), new_id)
    assert numbers(folder) == [*range(5, 13)]


def test_a_fact_takes_the_place_of_those_it_replaces(folder: FactsFolder) -> None:
    for number, kind in enumerate("abab"):
        folder.put(fact(number, kind), new_id, replaces=kind == "b")
    assert numbers(folder) == [0, 2, 3]


def test_the_oldest_go_for_want_of_room(folder: FactsFolder, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "FACTS_MAX", 3)
    assert [folder.put(fact(number), new_id) for number in range(5)] == [0, 0, 0, 1, 1]
    assert numbers(folder) == [2, 3, 4]


@pytest.mark.parametrize("content", [b"", b"[]", b"{}", b'{"type": "a", "time": "yesterday", "data": {}}'])
def test_a_file_that_is_no_fact_says_so(folder: FactsFolder, tmp_path: Path, content: bytes) -> None:
    folder.put(fact(1), new_id)
    (tmp_path / "proxy" / FACTS / "000000000002-x.json").write_bytes(content)
    (tmp_path / "proxy" / FACTS / "note.txt").write_text("no fact")
    with pytest.raises(UnreadableFactError, match="000000000002"):
        folder.read(folder.names()[1])


def test_a_disk_that_takes_nothing_is_an_error(tmp_path: Path) -> None:
    (tmp_path / "proxy").write_text("")
    with pytest.raises(FactsFolderError, match="disk"):
        FactsFolder(tmp_path / "proxy").put(fact(1), new_id)


def test_what_the_agent_knows_is_read_again_when_it_changes(folder: FactsFolder, tmp_path: Path) -> None:
    reads: list[object] = []

    def read(document: object) -> object:
        reads.append(document)
        return read_node_document(document)

    file = NodeFile(tmp_path / "proxy", read)
    assert file.value() == (None, None)
    shared = NodeDevicesShared(
        devices=(SharedDevice(type="gpu", minor=0, id="GPU-a", healthy=False, resources={"gpu-core": 100}),)
    )
    folder.write_node(node_document(shared, None))
    assert [file.value(), file.value()] == [(shared, None)] * 2
    allocated = NodeDevicesAllocated(
        pods=(PodShare(uid="u", namespace="n", pod="p", allocation={"gpu": ()}, requests={"gpu-core": 1}),)
    )
    folder.write_node(node_document(shared, allocated))
    assert file.value() == (shared, allocated)
    assert len(reads) == 3


@pytest.mark.parametrize("content", ["", "[1]", '{"shared": {"devices": 5}}'])
def test_what_is_no_document_of_a_node_says_so(tmp_path: Path, content: str) -> None:
    (tmp_path / NODE).write_text(content)
    with pytest.raises(UnreadableFactError, match="cannot be read"):
        NodeFile(tmp_path, read_node_document).value()


def test_checkpoints_are_a_fact(folder: FactsFolder) -> None:
    payload = NodeGpuCheckpointsObserved(omitted=2)
    folder.put(StoredFact(payload.TYPE, AT, payload.model_dump(mode="json")), new_id, replaces=True)
    (name,) = folder.names()
    assert NodeGpuCheckpointsObserved.model_validate(folder.read(name).data) == payload
