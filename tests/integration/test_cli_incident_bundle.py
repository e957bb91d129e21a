"""Incidents as files: exported with proofs to seals, redacted, signed, and opened where there is no ledger."""

import asyncio
from collections.abc import Iterator
from pathlib import Path

import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat, PublicFormat

from gpuledger.deciders.seals import decide
from gpuledger.events.allocation import AllocatedDevices, AllocationObserved
from gpuledger.events.maintenance import NodeMaintenanceRequested
from support import servers
from support.cli import Cli
from support.events import event
from support.health import REPORTS_OF_HEALTH, in_force, reported
from support.ledgers import new_ledger
from support.projections import publish
from support.seals import seal

MESSAGES_PER_SEAL = 8
HELD = AllocationObserved(
    node="n1",
    namespace="ml",
    pod="trainer-0",
    container="main",
    resources=(AllocatedDevices(resource="gpu.deckhouse.io/training", devices=("a",)),),
)
BY_EVA = NodeMaintenanceRequested(owner="operators/eva", reason="Fan", message="the fan of n1 is loud")


@pytest.fixture(scope="module")
def urls(postgres_server_url: str, migrated_template: str) -> Iterator[dict[str, str]]:
    """Two real servers with reports in a log of which a part is sealed, and a migrated database."""
    with servers.nats_server() as nats, servers.fresh_database(postgres_server_url, migrated_template) as database_url:
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(decide, "MESSAGES_PER_SEAL", MESSAGES_PER_SEAL)
            asyncio.run(_record(nats.url, database_url))
        yield {"NATS_URL": nats.url, "DATABASE_URL": database_url}


async def _record(nats_url: str, database_url: str) -> None:
    number = len(REPORTS_OF_HEALTH) + 1
    held = event(HELD, "n1/ml/trainer-0/main", number=number, at=7, source="/nodes/n1/agent")
    eva = event(BY_EVA, "n1", at=8.3, source="/operators/eva")
    async with new_ledger(nats_url) as ledger:
        await publish(ledger, [in_force(), held, eva, *reported(*REPORTS_OF_HEALTH)])
        await seal(ledger, database_url, 2)


@pytest.fixture
def incident(cli: Cli) -> str:
    """The first incident of the card `a`."""
    (row, *_) = cli("incident", "list", "--all", "--device", "a", "-o", "json").json()
    return str(row["incident"])


def test_a_bundle_shows_what_the_ledger_shows(
    cli: Cli, incident: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "one.bundle"
    result = cli("incident", "export", incident, "-o", str(path))
    assert result.code == 0, result.err
    shown = cli("incident", "show", incident, "-o", "json").json()
    monkeypatch.delenv("NATS_URL")
    monkeypatch.delenv("DATABASE_URL")
    found = cli("incident", "open", str(path), "-o", "json").json()
    assert found["incident"] == shown
    assert {one["standing"] for one in found["events"]} == {"sealed"}
    assert {"node.health-reported.v1", "node.maintenance-requested.v1", "allocation.observed.v1"} == {
        one["type"] for one in found["events"]
    }
    page = cli("incident", "open", str(path)).out
    assert "fell off the bus" in page
    assert "trainer-0" in page
    assert "Nobody has signed the bundle" in page


def test_the_same_export_has_the_same_bytes(cli: Cli, incident: str, tmp_path: Path) -> None:
    salt = tmp_path / "salt"
    salt.write_text("5a" * 32)
    for name in ("one", "two"):
        given = ("--redact", "nodes", "--redact", "pods", "--salt", str(salt), "-o", str(tmp_path / name))
        assert cli("incident", "export", incident, *given).code == 0
    assert (tmp_path / "one").read_bytes() == (tmp_path / "two").read_bytes()


def test_a_redacted_bundle_has_no_redacted_value_and_the_same_answer(cli: Cli, incident: str, tmp_path: Path) -> None:
    path = tmp_path / "redacted.bundle"
    classes = [part for one in ("nodes", "pods", "cards", "people", "texts") for part in ("--redact", one)]
    assert cli("incident", "export", incident, *classes, "-o", str(path)).code == 0
    text = path.read_text()
    for value in ("n1", "trainer-0", "fell off", "eva", "/nodes/n1"):
        assert value not in text
    shown = cli("incident", "show", incident, "-o", "json").json()
    found = cli("incident", "open", str(path), "-o", "json").json()
    assert {one["standing"] for one in found["events"]} == {"redacted"}
    one = found["incident"]
    assert [one[name] for name in ("opened_at", "ended_at", "codes", "reports")] == [
        shown[name] for name in ("opened_at", "ended_at", "codes", "reports")
    ]
    assert [row["position"] for row in one["timeline"]] == [row["position"] for row in shown["timeline"]]
    assert [row["namespace"] for row in one["holders"]] != ["ml"]


def test_withheld_events_leave_the_proof_whole(cli: Cli, incident: str, tmp_path: Path) -> None:
    path = tmp_path / "withheld.bundle"
    given = ("--withhold", "node.maintenance-requested", "-o", str(path))
    assert cli("incident", "export", incident, *given).code == 0
    found = cli("incident", "open", str(path), "-o", "json").json()
    (hidden,) = [one for one in found["events"] if one["standing"] == "withheld"]
    assert (hidden["type"], hidden["inSeal"], hidden["detail"]) == ("node.maintenance-requested.v1", True, None)
    assert "fan of n1" not in path.read_text()


def test_signatures_are_checked(cli: Cli, incident: str, tmp_path: Path) -> None:
    keys = [_key(tmp_path / name) for name in ("mine", "other")]
    path = tmp_path / "signed.bundle"
    assert cli("incident", "export", incident, "--key", str(keys[0]), "-o", str(path)).code == 0
    opened = cli("incident", "open", str(path), "--public-key", f"{keys[0]}.pub", "-o", "json").json()
    assert opened["bundle"]["signerIsExpected"]
    refused = cli("incident", "open", str(path), "--public-key", f"{keys[1]}.pub")
    assert refused.code == 1
    assert "signed with another key" in refused.err


def test_an_incident_that_no_seal_covers_says_so(cli: Cli, tmp_path: Path) -> None:
    (row,) = cli("incident", "list", "--device", "c", "-o", "json").json()
    path = tmp_path / "open.bundle"
    assert cli("incident", "export", row["incident"], "-o", str(path)).code == 0
    found = cli("incident", "open", str(path), "-o", "json").json()
    assert "sealed" in {one["standing"] for one in found["events"]}


@pytest.mark.parametrize(
    ("arguments", "code", "problem"),
    [
        (("export", "nothing", "-o", "FILE"), 1, "incident 'nothing' was not found"),
        (("export", "nothing", "-o", "OLD"), 2, "exists. Choose another name"),
        (("export", "nothing", "-o", "FILE", "--salt", "OLD"), 2, "--salt does not apply"),
        (("export", "nothing", "-o", "FILE", "--redact", "nodes", "--salt", "OLD"), 2, "no salt in hexadecimal"),
        (("export", "nothing", "-o", "FILE", "--key", "OLD"), 2, "no private key in PEM"),
        (("export", "nothing", "-o", "FILE", "--withhold", "node.nothing"), 2, "There is no event 'node.nothing'"),
        (("open", "FILE"), 2, "cannot be read"),
        (("open", "OLD"), 1, "Line 1 of the bundle is not valid: Invalid JSON"),
        (("open", "OLD", "--public-key", "OLD"), 2, "no public key in PEM"),
    ],
)
def test_problems(cli: Cli, tmp_path: Path, arguments: tuple[str, ...], code: int, problem: str) -> None:
    old = tmp_path / "old"
    old.write_text("nothing\n")
    names = {"FILE": str(tmp_path / "new"), "OLD": str(old)}
    result = cli("incident", *(names.get(one, one) for one in arguments))
    assert problem in result.err
    assert result.code == code
    assert [one.name for one in tmp_path.iterdir()] == ["old"]


def _key(path: Path) -> Path:
    key = Ed25519PrivateKey.generate()
    path.write_bytes(key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()))
    public = key.public_key().public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo)
    path.with_name(f"{path.name}.pub").write_bytes(public)
    return path
