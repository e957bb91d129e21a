"""Which files and units a configuration may have."""

from pathlib import Path

import pytest

from gpuledger.api.machine_config import POWER_UNITS, REFUSED_PATHS, REFUSED_UNITS
from gpuledger.domain.machineconfig.rendered_object import UNIT_STATES
from gpuledger.domain.machineconfig.validation import (
    files_above,
    mode_problem,
    owner_problem,
    path_problem,
    repeated,
    state_problem,
    unit_problem,
)


@pytest.mark.parametrize(
    "path",
    [
        "/etc/chrony.conf",
        "/etc/kubernetes.conf",
        "/var/lib/kubelets/a",
        "/usr/local/bin/x",
        "/opt/ä b",
        "/etc/a..b",
        "/x",
    ],
)
def test_files_of_people(path: str) -> None:
    assert path_problem(path) is None


@pytest.mark.parametrize(
    ("path", "words"),
    [
        ("", "absolute"), ("etc/a", "absolute"), ("/", "absolute"), ("~/a", "absolute"),
        ("/etc/../boot/a", "normalised"), ("/etc//a", "normalised"), ("/etc/./a", "normalised"),
        ("/etc/a/", "normalised"),
        ("/..", "normalised"), ("/etc/a\n", "control"), ("/etc/\0", "control"), ("/etc/\x7f", "control"),
        ("/etc/" + "a" * 256, "too long"), ("/etc/" + "ä" * 128, "too long"), ("/a" * 2048, "too long"),
    ],
)  # fmt: skip
def test_paths_that_name_no_file(path: str, words: str) -> None:
    assert words in (path_problem(path) or "")


@pytest.mark.parametrize("folder", REFUSED_PATHS)
def test_refused_folders_what_is_in_them_and_what_they_are_in(folder: str) -> None:
    above = [str(one) for one in Path(folder).parents if str(one) != "/"]
    for path in (folder, f"{folder}/a", f"{folder}/a/b", *above):
        assert "is refused" in (path_problem(path) or ""), path
    assert path_problem(f"{folder}-other/a") is None


@pytest.mark.parametrize("stem", REFUSED_UNITS)
def test_refused_units_with_and_without_suffix(stem: str) -> None:
    for name in (stem, f"{stem}.service", f"{stem}.socket", f"{stem}@a.service", f"{stem}@.service"):
        assert f"depend on {stem}" in (unit_problem(name) or ""), name
    assert unit_problem(f"{stem}-exporter.service") is None


@pytest.mark.parametrize(
    "name", ["chronyd.service", "a@b.service", "var-lib-a.mount", "dev-sda\\x2d1.swap", "a.b.timer"]
)
def test_units_of_people(name: str) -> None:
    assert unit_problem(name) is None


@pytest.mark.parametrize(
    "name",
    [
        "",
        "chronyd",
        ".service",
        "a.conf",
        "a b.service",
        "../a.service",
        "a.service\n",
        "ä.service",
        "a" * 250 + ".service",
    ],
)
def test_names_that_are_no_units(name: str) -> None:
    assert "not the name of a unit" in (unit_problem(name) or "")


@pytest.mark.parametrize("stem", POWER_UNITS)
def test_units_that_take_the_machine_down_may_be_stopped_and_masked(stem: str) -> None:
    for suffix in ("target", "service"):
        name = f"{stem}.{suffix}"
        assert all(
            "reboot.required" in (state_problem(name, state) or "") for state in UNIT_STATES[:1] + UNIT_STATES[2:]
        )
        assert state_problem(name, None) is state_problem(name, "stopped") is unit_problem(name) is None
    assert state_problem(f"{stem}-exporter.service", "started") is None


@pytest.mark.parametrize("owner", ["root:root", "0:0", "1000:100", "systemd-network:adm", "_chrony:_chrony"])
def test_owners(owner: str) -> None:
    assert owner_problem(owner) is None


@pytest.mark.parametrize("owner", ["", "root", "root:", ":root", "a:b:c", "ro ot:root", "-a:b", "root:root\n"])
def test_what_is_no_owner(owner: str) -> None:
    assert "not an owner" in (owner_problem(owner) or "")


def test_modes() -> None:
    assert all(mode_problem(mode) is None for mode in (0, 0o400, 0o644, 0o755, 0o2755, 0o4755, 0o7777))
    assert "0644" in (mode_problem(644) or "")
    assert "decimal 755 is octal 01363" in (mode_problem(755) or "")
    assert all(mode_problem(mode) for mode in (-1, 0o10000))


def test_repeated_names() -> None:
    assert repeated(["b", "a", "b", "c", "a"]) == ["a", "b"]
    assert repeated(["a", "b"]) == repeated([]) == []


def test_a_file_cannot_be_the_folder_of_another() -> None:
    assert list(files_above(["/etc/a/b/c", "/etc/a", "/etc/ab", "/etc/a.conf"])) == [("/etc/a", "/etc/a/b/c")]
