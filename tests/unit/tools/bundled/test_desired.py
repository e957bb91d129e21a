"""What the Secrets of the chart's servers should hold, given what they hold."""

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta

import pytest
from cryptography import x509
from cryptography.x509.oid import ExtendedKeyUsageOID

from gpuledger.api.bundled import NATS_LOGINS, PARTS, BundledServers
from gpuledger.tools.bundled.desired import SERVER_LIFE, desired_secrets

NOW = datetime(2026, 3, 1, tzinfo=UTC)
SERVERS = BundledServers("lab", "gpu")
Secrets = dict[str, dict[str, bytes]]


def draws() -> Iterator[bytes]:
    yield from (bytes([number]) * 32 for number in range(1, 255))


def desired(current: Secrets, servers: BundledServers = SERVERS, now: datetime = NOW, first: int = 0) -> Secrets:
    numbers = draws()
    for _ in range(first):
        next(numbers)
    return desired_secrets(current, servers, now, lambda: next(numbers))


def certificate(data: dict[str, bytes]) -> x509.Certificate:
    return x509.load_pem_x509_certificate(data["tls.crt"])


def test_what_is_there_stays() -> None:
    made = desired({})
    assert set(made) == set(PARTS)
    assert desired(made, first=100) == made


@pytest.mark.parametrize(("part", "key"), [("nats", login) for login in NATS_LOGINS] + [("postgres", "password")])
def test_a_password_that_is_lost_is_drawn_anew_for_both_sides(part: str, key: str) -> None:
    made = desired({})
    lost = {name: {**data} for name, data in made.items()}
    del lost[part][key]
    again = desired(lost, first=100)
    assert again[part][key] != made[part][key]
    holders = ("services", "operator", "reader") if part == "postgres" else (key,)
    for client in holders:
        assert any(again[part][key] in value for value in again[client].values())
        assert not any(made[part][key] in value for value in again[client].values())
    assert {other: again[part][other] for other in made[part] if other != key} == {
        other: made[part][other] for other in made[part] if other != key
    }


def test_certificates_are_renewed_in_time_and_nothing_else() -> None:
    made = desired({})
    before, after = NOW + SERVER_LIFE / 2, NOW + SERVER_LIFE * 3 / 4
    assert desired(made, now=before, first=100) == made
    renewed = desired(made, now=after, first=100)
    for part in ("nats", "postgres", "gateway"):
        assert certificate(renewed[part]).not_valid_after_utc > after + SERVER_LIFE * 3 / 4
    changed = {(part, key) for part in PARTS for key in made[part] if made[part][key] != renewed[part][key]}
    assert changed == {(part, key) for part in ("nats", "postgres", "gateway") for key in ("tls.crt", "tls.key")}


def test_a_damaged_authority_is_replaced_with_everything_that_it_signed() -> None:
    made = desired({})
    again = desired(made | {"ca": {}}, first=100)
    authority = certificate(again["ca"])
    for part in ("nats", "postgres"):
        certificate(again[part]).verify_directly_issued_by(authority)
    assert all(again[part]["ca.crt"] == again["ca"]["ca.crt"] for part in PARTS)


@pytest.mark.parametrize(
    ("part", "hosts"),
    [
        ("nats", {*SERVERS.nats_peers(), SERVERS.nats_host}),
        ("postgres", {*SERVERS.postgres_peers(), SERVERS.postgres_host}),
    ],
)
def test_servers_of_a_cluster_may_show_their_certificates_to_each_other(part: str, hosts: set[str]) -> None:
    extensions = certificate(desired({})[part]).extensions
    purposes = set(extensions.get_extension_for_class(x509.ExtendedKeyUsage).value)
    assert purposes == {ExtendedKeyUsageOID.SERVER_AUTH, ExtendedKeyUsageOID.CLIENT_AUTH}
    names = extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    assert hosts <= set(names.get_values_for_type(x509.DNSName))


@pytest.mark.parametrize(
    ("servers", "absent", "key"),
    [
        (SERVERS._replace(nats=False), {"nats", "agents", "callout", "gateway"}, "NATS_URL"),
        (SERVERS._replace(postgres=False), {"postgres"}, "DATABASE_URL"),
        (SERVERS._replace(postgres=False), {"postgres"}, "DATABASE_READ_URL"),
    ],
)
def test_a_server_of_somebody_else_gets_nothing(servers: BundledServers, absent: set[str], key: str) -> None:
    made = desired({}, servers)
    assert set(made) == set(PARTS) - absent
    assert all(key not in data for data in made.values())


def test_each_client_may_read_from_a_member_that_follows() -> None:
    made = desired({})
    password = made["postgres"]["password"].decode()
    hosts = ",".join(f"{host}:5432" for host in SERVERS.postgres_peers())
    expected = f"postgresql://gpuledger:{password}@{hosts}/gpuledger?target_session_attrs=prefer-standby"
    for client in ("services", "operator", "reader"):
        assert made[client]["DATABASE_READ_URL"].decode().startswith(expected)
    names = certificate(made["postgres"]).extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    assert set(SERVERS.postgres_peers()) <= set(names.get_values_for_type(x509.DNSName))


def test_a_clock_that_went_back_replaces_what_does_not_hold_yet() -> None:
    made = desired({}, now=NOW + timedelta(days=3))
    assert certificate(desired(made)["nats"]).not_valid_before_utc < NOW
