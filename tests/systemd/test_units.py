"""The units: how far the sandbox goes, and that what they start takes the flags they give."""

import argparse
import configparser
import re
import shlex
import shutil
import stat
import subprocess
from pathlib import Path

import pytest

from nodeagent.config import options as agent_options
from nodeagent.pods.volumes import mount_helper
from orch.lifecycle import options as controller_options
from orch.server import authority
from orch.server import flags as apiserver_flags

SERVICES = sorted((Path(__file__).parents[2] / "systemd").glob("*.service"))
HELPER = next(unit for unit in SERVICES if unit.stem == "nodeagent-mounts")
RENEWAL = next(unit for unit in SERVICES if unit.stem == "orch-apiserver-renew")
UNITS = [unit for unit in SERVICES if unit not in (HELPER, RENEWAL)]
MOST_EXPOSED = 28  # tenths of a point; container runtimes and sshd score 96
MOST_EXPOSED_HELPER = 36  # it has no file system sandbox, since it mounts for others

HANDED_OVER = ("${CREDENTIALS_DIRECTORY}/", "${RUNTIME_DIRECTORY}/")

needs_systemd = pytest.mark.skipif(
    shutil.which("systemd-analyze") is None, reason="systemd-analyze (Debian: systemd) is missing"
)
each_unit = pytest.mark.parametrize("unit", UNITS, ids=lambda unit: unit.stem)
each_service = pytest.mark.parametrize("unit", SERVICES, ids=lambda unit: unit.stem)


def read(unit: Path) -> list[tuple[str, str]]:
    """Every setting of the unit in order, continued lines joined."""
    text = unit.read_text().replace("\\\n", " ")
    lines = [line for line in text.splitlines() if line and line[0] not in "#["]
    return [(key, value) for key, _, value in (line.partition("=") for line in lines)]


def test_there_is_a_unit_for_each_daemon() -> None:
    names = [unit.stem for unit in UNITS]
    assert names == ["nodeagent", "orch-apiserver", "orch-controller-manager"]


@needs_systemd
@each_service
def test_the_sandbox_scores_well_enough(unit: Path) -> None:
    most = MOST_EXPOSED_HELPER if unit == HELPER else MOST_EXPOSED
    done = subprocess.run(
        ["systemd-analyze", "security", "--offline=yes", f"--threshold={most}", str(unit)],
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert done.returncode == 0, done.stdout + done.stderr


@needs_systemd
@each_service
def test_systemd_understands_every_line(unit: Path) -> None:
    done = subprocess.run(
        ["systemd-analyze", "verify", "--man=no", str(unit)],
        capture_output=True,
        text=True,
        timeout=60,
    )
    complaints = [line for line in done.stderr.splitlines() if unit.name in line]
    unexpected = [line for line in complaints if "is not executable" not in line]
    assert unexpected == []


@each_service
def test_a_forbidden_call_fails_instead_of_killing(unit: Path) -> None:
    settings = read(unit)
    assert ("SystemCallErrorNumber", "EPERM") in settings
    assert ("NoNewPrivileges", "yes") in settings
    assert ("UMask", "0077") in settings
    types = {HELPER: "exec", RENEWAL: "oneshot"}
    assert ("Type", types.get(unit, "notify")) in settings


@each_unit
def test_stopping_may_take_as_long_as_the_program_needs(unit: Path) -> None:
    assert int(dict(read(unit))["TimeoutStopSec"]) > 30


@each_service
def test_the_file_is_not_writable_for_others(unit: Path) -> None:
    assert not unit.stat().st_mode & (stat.S_IWGRP | stat.S_IWOTH | stat.S_IXUSR)


def of_init(argv: list[str]) -> None:
    parser = argparse.ArgumentParser()
    authority.add_arguments(parser)
    assert argv.pop(0) == "init"
    assert parser.parse_args(argv).renew


@each_service
def test_the_command_line_is_one_the_program_takes(unit: Path) -> None:
    command = re.sub(r"\$[A-Z_]+_ARGS", "", dict(read(unit))["ExecStart"])
    program, *argv = shlex.split(re.sub(r"\$\{[A-Z]+_DIRECTORY\}", "/handed-over", command))
    assert program == f"/usr/bin/{unit.stem.removesuffix('-renew')}"
    parsers = {
        "nodeagent": agent_options.parse,
        "nodeagent-mounts": mount_helper.parser().parse_args,
        "orch-apiserver": apiserver_flags.parse,
        "orch-apiserver-renew": of_init,
        "orch-controller-manager": controller_options.parse,
    }
    parsers[unit.stem](argv)


def test_the_agent_sees_what_it_measures_and_writes_where_it_must() -> None:
    settings = dict(read(next(unit for unit in UNITS if unit.stem == "nodeagent")))
    # These would hide /proc/pressure, other processes, or the host's network.
    for hiding in ("ProcSubset", "ProtectProc", "PrivateNetwork", "PrivateUsers"):
        assert hiding not in settings
    written = ["/run", "/sys/fs/cgroup", "-/etc/systemd/logind.conf.d"]
    assert settings["ReadWritePaths"].split() == written
    assert settings["StateDirectory"] == "nodeagent"
    assert settings["WatchdogSec"] == "15"


def test_the_helper_has_no_mount_namespace_of_its_own_and_few_capabilities() -> None:
    settings = dict(read(HELPER))
    needing_one = (
        "Private",
        "Protect",
        "ReadWrite",
        "ReadOnly",
        "Inaccessible",
        "Bind",
        "Temporary",
    )
    assert [key for key in settings if key.startswith(needing_one)] == []
    assert settings["CapabilityBoundingSet"] == "CAP_SYS_ADMIN CAP_DAC_READ_SEARCH"
    assert settings["RestrictAddressFamilies"] == "AF_UNIX"


def test_the_agent_asks_at_the_socket_that_only_root_may_use() -> None:
    socket = dict(read(HELPER.with_suffix(".socket")))
    agent = dict(read(HELPER.with_name("nodeagent.service")))
    assert socket["SocketMode"] == "0600"
    assert f"--mount-helper={socket['ListenSequentialPacket']} " in agent["ExecStart"]
    assert "nodeagent-mounts.socket" in agent["Wants"].split()


@each_unit
def test_credentials_stand_in_no_world_readable_place(unit: Path) -> None:
    parser = configparser.RawConfigParser(strict=False)
    parser.read_string(re.sub(r"\\\n", " ", unit.read_text()))
    command = parser["Service"]["ExecStart"]
    assert not re.search(r"--(token|password)", command)
    if unit.stem != "nodeagent":  # the agent reads /etc/nodeagent itself, which is 0700
        for flag in re.findall(
            r"--\S*(?:file|certificate|key|authority|kubeconfig)=(\S+)", command
        ):
            certificate = flag.startswith("/etc/orch-apiserver/") and flag.endswith(".crt")
            assert certificate or flag.startswith(HANDED_OVER)
        assert parser["Service"]["RuntimeDirectoryMode"] == "0700"


def test_the_agent_has_cgroups_of_its_own_for_cpu_and_memory() -> None:
    """Else those of v1 differ, and the summary cannot tell what the agent uses."""
    agent = dict(read(next(unit for unit in UNITS if unit.stem == "nodeagent")))
    assert agent["CPUAccounting"] == "yes"
    assert agent["MemoryMax"] != "infinity"
