"""The commands as the roles that docs/service-credentials.md names for them, each with its own credentials file."""

from collections.abc import Iterator
from pathlib import Path

import orjson
import pytest

from gpuledger.ledger.permissions import Role
from support.nats_logins import WrittenServer
from support.paths import ROOT
from support.roles import PASSWORD, role_server
from support.servers import postgres_server
from support.up import eventually, gpuledger, running_up

pytestmark = [pytest.mark.long, pytest.mark.timeout(600)]

FACT = {
    "type": "io.gpuledger.node.registered.v1",
    "subject": "n1",
    "time": "2025-01-01T00:00:00Z",
    "data": {"gpu_count": 8},
}

RULES, REMEDIES = (str(ROOT / "examples" / f"{part}-rules.yaml") for part in ("quarantine", "remediation"))


class Site:
    """The servers, and the environment of each role."""

    def __init__(self, server: WrittenServer, database_url: str, folder: Path) -> None:
        self.folder = folder
        self._urls = {"NATS_URL": f"nats://{server.address}", "DATABASE_URL": database_url}

    def variables(self, role: Role) -> dict[str, str]:
        file = self.folder / f"{role}.login"
        file.write_text(f"user: gpuledger-{role}\npassword: {PASSWORD}\n")
        return {**self._urls, "GPULEDGER_NATS_CREDENTIALS": str(file)}

    def runs(self, role: Role, *arguments: str) -> str:
        """What the command prints; it must succeed."""
        done = gpuledger(self.folder, *arguments, **self.variables(role))
        assert done.returncode == 0, done.stderr.decode()
        return done.stdout.decode()

    def is_refused(self, role: Role, *arguments: str) -> None:
        """The command says that permission is missing, and what to do."""
        done = gpuledger(self.folder, *arguments, **self.variables(role))
        assert done.returncode == 4, (done.stdout, done.stderr)
        assert "does not let us publish to" in done.stderr.decode()
        assert "gpuledger permissions ROLE" in " ".join(done.stderr.decode().split())


@pytest.fixture
def site(tmp_path: Path) -> Iterator[Site]:
    with role_server() as nats, postgres_server() as postgres:
        yield Site(nats, postgres.url, tmp_path)


@pytest.mark.parametrize("partitions", ["1", "4"])
def test_every_command_does_with_its_role(site: Site, partitions: str) -> None:
    facts = site.folder / "facts.jsonl"
    facts.write_bytes(orjson.dumps(FACT) + b"\n")
    site.is_refused(Role.SERVICES, "migrate")
    site.runs(Role.OPERATOR, "migrate", "--partitions", partitions)
    with running_up(site.folder, "--no-kube", **site.variables(Role.SERVICES)) as up:
        site.is_refused(Role.READER, "import", "jsonl", str(facts))
        site.runs(Role.IMPORTER, "import", "jsonl", str(facts))
        eventually(lambda: "n1" in site.runs(Role.READER, "get", "nodes", "-o", "name"))
        site.is_refused(Role.READER, "log", "skip", "1", "--reason", "a test", "--yes")
        site.runs(Role.SKIPPER, "log", "skip", "1", "--reason", "a test", "--yes")
        site.is_refused(Role.SERVICES, "quarantine", "apply", "-f", RULES)
        for _ in range(2):
            site.runs(Role.SKIPPER, "quarantine", "apply", "-f", RULES)
            site.runs(Role.SKIPPER, "remediation", "apply", "-f", REMEDIES)
        for command in (
            ("log", "tail"),
            ("log", "stats"),
            ("log", "export", str(site.folder / "log.jsonl")),
            ("doctor",),
        ):
            site.runs(Role.READER, *command)
        site.runs(Role.OPERATOR, "log", "backup", str(site.folder / "copy"))
        assert up.health().status == 200
    site.runs(Role.RESTORER, "log", "import", str(site.folder / "log.jsonl"), "--yes")
    with running_up(site.folder, "--no-kube", **site.variables(Role.SERVICES)) as up:
        assert up.becomes(200).document["generation"] == 2
        site.runs(Role.READER, "verify", "--log")
