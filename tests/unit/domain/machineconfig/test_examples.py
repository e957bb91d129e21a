"""The example of machine configuration: it is understood whole, and its pool is rendered from it."""

from gpuledger.domain.machineconfig.rendering import render
from gpuledger.domain.machineconfig.selection import selection_of
from gpuledger.events.machine_config import MachineConfigRendered
from support.examples import FOLDER
from support.machine_configs import config_objects, read_configs, read_pools

OBJECTS = config_objects(FOLDER / "machine-config.yaml")


def test_the_example_is_rendered() -> None:
    configs, (pool,) = read_configs(OBJECTS), read_pools(OBJECTS).values()
    assert [one.problems for _, one in configs] + [pool.problems] == [()] * 3
    assert selection_of(pool).has_node("w1", {"gpu.deckhouse.io/present": "true"})
    found = render("gpu", pool, configs, {})
    assert isinstance(found, MachineConfigRendered)
    assert [one.name for one in found.sources] == ["gpu-sysctl", "gpu-chrony"]
    assert [(one.path, one.mode, one.state) for one in found.files] == [
        ("/etc/chrony/conf.d/gpu.conf", 0o644, "present"),
        ("/etc/cron.daily/ntpdate", 0o644, "absent"),
        ("/etc/sysctl.d/80-gpu.conf", 0o644, "present"),
    ]
    assert [one.name for one in found.units] == [
        "chrony.service",
        "systemd-sysctl.service",
        "systemd-timesyncd.service",
    ]
