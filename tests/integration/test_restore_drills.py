"""The drills of docs/operations.md for the loss of either server or both: the very commands, on real servers."""

import base64
import os
import re
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

import orjson
import psycopg
import pytest

from gpuledger.ledger.partitions import in_partition, order_subject, parse_upto, partition_of
from gpuledger.local.servers.postgres_binaries import find_binaries
from support.ledgers import run_partitions
from support.paths import ROOT
from support.servers import nats_answer, nats_server, postgres_server
from support.up import COMMAND, Up, environment, eventually, gpuledger, running_up

PAGE = ROOT / "docs" / "operations.md"
SECTION = "Backing up both servers"
TIMEOUT_S = 300.0

pytestmark = [pytest.mark.long, pytest.mark.timeout(600)]


def commands(heading: str) -> list[str]:
    """The blocks of commands below a heading of the section, as they stand in the documentation."""
    section = re.split(r"^## ", PAGE.read_text().split(f"\n## {SECTION}\n")[1], maxsplit=1, flags=re.MULTILINE)[0]
    text = re.split(r"^### ", section.split(f"\n### {heading}\n")[1], maxsplit=1, flags=re.MULTILINE)[0]
    return re.findall(r"^```sh\n(.*?)^```$", text, re.MULTILINE | re.DOTALL)


class Site(NamedTuple):
    """A NATS server, a PostgreSQL server, and folders of the test."""

    nats_url: str
    database_url: str
    folder: Path

    @property
    def variables(self) -> dict[str, str]:
        """What an operator has in the environment."""
        return {
            "NATS_URL": self.nats_url,
            "DATABASE_URL": self.database_url,
            "BACKUP": str(self.folder),
            "PATH": f"{self.folder}:{find_binaries()}:{os.environ['PATH']}",
        }

    def shell(self, script: str) -> None:
        """Run documented commands; each must succeed."""
        done = subprocess.run(
            ("bash", "-euo", "pipefail", "-c", script),
            env=environment(self.folder / "data") | self.variables,
            capture_output=True,
            text=True,
            timeout=TIMEOUT_S,
            check=False,
        )
        assert done.returncode == 0, f"{script}\n{done.stdout}\n{done.stderr}"

    def gpuledger(self, *arguments: str) -> str:
        """Run a command; it must succeed."""
        done = gpuledger(self.folder / "data", *arguments, **self.variables)
        assert done.returncode == 0, done.stderr.decode()
        return done.stdout.decode()

    @contextmanager
    def up(self) -> Iterator[Up]:
        """`gpuledger up` on both servers."""
        with running_up(self.folder / "data", "--no-kube", **self.variables) as running:
            yield running

    def record(self, number: int) -> None:
        """Import some facts, and have a broken agent publish something, which `sources` decides about."""
        file = self.folder / f"facts-{number}.jsonl"
        facts = [
            {
                "type": "io.gpuledger.node.registered.v1",
                "subject": f"n{number}-{index}",
                "time": "2025-01-01T00:00:00Z",
                "data": {"gpu_count": 8},
            }
            for index in range(50)
        ]
        file.write_bytes(b"".join(orjson.dumps(fact) + b"\n" for fact in facts))
        self.gpuledger("import", "jsonl", str(file))
        subject, partitions = f"ledger.node.n{number}.device.d.broken", run_partitions()
        taken = in_partition(subject, partition_of(subject, partitions), partitions)
        nats_answer(self.nats_url, taken, b"no event")

    def head(self) -> int:
        """The last position of the log."""
        if (partitions := run_partitions()) > 1:
            asked = orjson.dumps({"last_by_subj": order_subject(1)})
            message = nats_answer(self.nats_url, "$JS.API.STREAM.MSG.GET.LEDGER_1", asked)["message"]
            return sum(parse_upto(base64.b64decode(message["data"]), partitions) or ())
        state = nats_answer(self.nats_url, "$JS.API.STREAM.INFO.LEDGER_1")["state"]
        return int(state["last_seq"])

    def settled(self, up: Up) -> None:
        """Return when every projection has folded everything, its own decisions included."""

        def all_done() -> bool:
            document = up.health().document
            projections = document["projections"]
            assert isinstance(projections, dict)
            head = self.head()
            return all(one["position"] == head for one in projections.values())

        eventually(all_done)

    def rows(self) -> int:
        """How many rows of nodes PostgreSQL has, whatever the log says."""
        with psycopg.connect(self.database_url) as connection:
            found = connection.execute("SELECT count(*) FROM gpuledger_live.node").fetchone()
        assert found is not None
        return int(found[0])

    def nodes(self) -> int:
        """How many nodes the rows have."""
        return len(orjson.loads(self.gpuledger("get", "nodes", "-o", "json")))


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """The folder of the backup, with `gpuledger` as a program in it, and a data directory that stays empty."""
    words = " ".join(f"'{word}'" for word in COMMAND)
    program = tmp_path / "gpuledger"
    program.write_text(f'#!/bin/sh\nexec {words} "$@"\n')
    program.chmod(0o755)
    (tmp_path / "data").mkdir()
    return tmp_path


@pytest.fixture
def site(folder: Path) -> Iterator[Site]:
    """A site in operation whose backup was taken while `up` ran, and which recorded more after that."""
    with nats_server() as nats, postgres_server() as postgres:
        site = Site(nats.url, postgres.url, folder)
        site.gpuledger("migrate")
        with site.up() as up:
            site.record(1)
            site.settled(up)
            site.shell("".join(commands("Take a pair")))
            site.record(2)
            site.settled(up)
        assert site.nodes() == 100
        yield site


def test_both_are_lost(site: Site) -> None:
    with nats_server() as nats, postgres_server() as postgres:
        restored = site._replace(nats_url=nats.url, database_url=postgres.url)
        bring_back, prove = commands("Bring back both")
        restored.shell(bring_back)
        with restored.up() as up:
            restored.settled(up)
            restored.record(3)
            restored.settled(up)
            restored.shell(prove)
        assert restored.nodes() == 100
        restored.gpuledger("doctor")


def test_postgres_is_lost(site: Site) -> None:
    with postgres_server() as postgres:
        restored = site._replace(database_url=postgres.url)
        for script in commands("Bring back PostgreSQL alone"):
            restored.shell(script)
        with restored.up() as up:
            restored.settled(up)
            assert restored.nodes() == 100
            restored.record(3)
            restored.settled(up)
            restored.gpuledger("verify")


def test_nats_is_lost(site: Site) -> None:
    """The copy of the log ends before the rows: `up` stops, says so, and goes on once the loss is accepted."""
    with nats_server() as nats:
        restored = site._replace(nats_url=nats.url)
        bring_back, accept = commands("Bring back NATS alone")
        restored.shell(bring_back)
        with restored.up() as up:
            eventually(lambda: "The log was restored" in str(up.health().document["reason"]))
            before = restored.head()
        assert restored.head() == before, "nothing is recorded while it stands"
        assert restored.rows() == 100
        restored.shell(accept)
        with restored.up() as up:
            restored.record(3)
            restored.settled(up)
            restored.gpuledger("verify")
        assert restored.nodes() == 100
