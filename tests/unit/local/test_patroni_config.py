"""The configuration of three PostgreSQL servers: who begins a cluster, who comes in how, and who may take over."""

from pathlib import Path
from typing import Any

import pytest

from gpuledger.api.bundled import BundledServers
from gpuledger.local.pods.patroni_config import CLUSTER, Member, Passwords, Place, configuration, member_of
from gpuledger.local.servers.errors import ServerStartError

HOSTS = BundledServers("lab", "gpu").postgres_peers()
PLACE = Place(Path("/data/postgres"), Path("/run/server"), Path("/programs"), 5432)


def made(number: int = 0) -> dict[str, Any]:
    member = member_of(f"lab-postgres-{number}", HOSTS, "gpu")
    return configuration(member, Passwords("r" * 16, "w" * 16), {"ssl": "on"}, PLACE)


def test_only_the_first_member_may_begin_a_cluster() -> None:
    assert ["bootstrap" in made(number) for number in range(3)] == [True, False, False]
    assert made()["bootstrap"]["dcs"] == CLUSTER


def test_only_who_has_all_that_was_acknowledged_takes_over() -> None:
    assert CLUSTER["synchronous_mode"] is True
    assert CLUSTER["ttl"] >= CLUSTER["loop_wait"] + 2 * CLUSTER["retry_timeout"], "Patroni's own rule"


def test_nobody_comes_in_over_the_network_without_tls_nor_as_the_superuser() -> None:
    rules = [line.split() for line in made()["postgresql"]["pg_hba"]]
    assert {rule[0] for rule in rules} == {"local", "hostssl"}
    remote = [rule for rule in rules if rule[0] == "hostssl"]
    assert remote[0] == ["hostssl", "all", "postgres", "all", "reject"]
    assert {rule[-1] for rule in remote} == {"reject", "scram-sha-256"}


def test_members_verify_each_others_names() -> None:
    written = made(1)
    logins = written["postgresql"]["authentication"]
    for login in ("replication", "rewind"):
        assert (logins[login]["sslmode"], logins[login]["sslrootcert"]) == ("verify-full", "/run/server/ca.crt")
    assert "password" not in logins["superuser"]
    assert written["postgresql"]["connect_address"] == f"{HOSTS[1]}:5432"
    assert written["restapi"]["connect_address"] == f"{HOSTS[1]}:8008"
    assert (written["restapi"]["verify_client"], written["ctl"]["cacert"]) == ("optional", "/run/server/ca.crt")


def test_a_member_is_the_one_that_its_pod_is_called_after() -> None:
    assert member_of("lab-postgres-2", HOSTS, "gpu") == Member("lab-postgres-2", HOSTS[2], HOSTS, "gpu")
    with pytest.raises(ServerStartError, match="No --peer begins with lab-postgres-7"):
        member_of("lab-postgres-7", HOSTS, "gpu")
