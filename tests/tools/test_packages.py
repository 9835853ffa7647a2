"""The contents of packages and the wheel, and programs that run from them.

The packages are made without libraries, which come from the tests' own environment; with them, on
bare systems, tests/systemd/test_packages.py installs them.
"""

from __future__ import annotations

import io
import os
import re
import shutil
import signal
import subprocess
import sys
import sysconfig
import tarfile
import zipfile
from pathlib import Path

import pytest
import yaml

from orch.wire.names import VERSION
from tests.nodeagent.commands.test_reset_real import until
from tools.packages import deb, staging, wheels
from tools.packages.contents import PACKAGES, Wheel, libraries

pytestmark = pytest.mark.seconds(25)

ROOT = Path(__file__).resolve().parents[2]
PACKAGING = ROOT / "packaging"
SCRIPTS = [path for path in sorted(PACKAGING.glob("deb/*/p*")) if path.is_file()]
LIBRARIES = sysconfig.get_path("purelib")

needs_dpkg = pytest.mark.skipif(shutil.which("dpkg-deb") is None, reason="dpkg-deb is missing")


@pytest.fixture(scope="module")
def own(tmp_path_factory: pytest.TempPathFactory) -> Wheel:
    """The project's wheel."""
    return wheels.own(ROOT, tmp_path_factory.mktemp("own") / "wheel")


@pytest.fixture(scope="module")
def made(own: Wheel, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """Every package file by its name."""
    work = tmp_path_factory.mktemp("packages")
    files = {}
    for package in PACKAGES:
        staging.stage(package, work / package.name, own, {"3.11": []})
        deb.add_files(package, work / package.name, PACKAGING)
        files[package.name] = deb.build(package, work / package.name, PACKAGING, work)
    return files


def listed(package: Path, part: str) -> dict[str, tarfile.TarInfo]:
    """The members of a package's `ctrl` or `fsys` part, by path."""
    done = subprocess.run(
        ["dpkg-deb", f"--{part}-tarfile", package], check=True, capture_output=True
    )
    with tarfile.open(fileobj=io.BytesIO(done.stdout)) as tar:
        return {member.name: member for member in tar}


def field(package: Path, name: str) -> str:
    done = subprocess.run(["dpkg-deb", "-f", package, name], check=True, capture_output=True)
    return done.stdout.decode().strip()


def wheel(
    folder: Path, name: str, module: str, requires: str = "", tags: str = "py3-none-any"
) -> Wheel:
    path = folder / f"{name}-1-{tags}.whl"
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr(f"{module}/__init__.py", "")
        wanted = f"Requires-Dist: {requires}\n" if requires else ""
        archive.writestr(f"{name}-1.dist-info/METADATA", f"Metadata-Version: 2.1\n{wanted}")
    return Wheel(path)


def test_the_wheel_has_units_docs_pages_and_the_one_version(own: Wheel) -> None:
    assert own.path.name.startswith(f"nodeagent-{VERSION[1:]}-")
    places = {name.partition(".data/data/")[2] for name in own.names}
    for unit in (ROOT / "systemd").iterdir():
        assert f"lib/systemd/system/{unit.name}" in places
    for page in (ROOT / "docs").glob("*.md"):
        assert f"share/doc/nodeagent/{page.name}" in places
    assert "share/man/man8/nodeagent.8" in places
    assert "share/bash-completion/completions/orchctl" in places


def test_a_package_has_the_libraries_that_its_rooms_import(tmp_path: Path) -> None:
    sources = tmp_path / "sources"
    for path, text in {
        "orch/ctl/main.py": "def run():\n    from orch.client import api\n",
        "orch/client/api.py": "import fetching.deep\n",
        "orch/client/other.py": "import unused\n",
    }.items():
        (sources / path).parent.mkdir(parents=True, exist_ok=True)
        (sources / path).write_text(text)
    available = [
        wheel(tmp_path, "Fetching.Lib", "fetching", 'Below_It>=1; python_version < "4"'),
        wheel(tmp_path, "below_it", "below", "unused; extra == 'more'"),
        wheel(tmp_path, "unused", "unused"),
    ]
    client = next(package for package in PACKAGES if package.name == "orchctl")
    found = libraries(client, sources, available, "3.13")
    assert [one.name for one in found] == ["below-it", "fetching-lib"]


def test_a_wheel_for_every_python_is_told_from_one_for_a_single_one(tmp_path: Path) -> None:
    tags = {
        "py3-none-any": True,
        "cp311-abi3-linux_x86_64": True,
        "cp311-cp311-linux_x86_64": False,
    }
    assert [wheel(tmp_path, "a", "a", tags=one).any_python for one in tags] == [*tags.values()]


@needs_dpkg
def test_every_package_has_its_programs_pages_and_units(made: dict[str, Path]) -> None:
    assert {field(path, "Version") for path in made.values()} == {VERSION[1:]}
    for package in PACKAGES:
        files = listed(made[package.name], "fsys")
        for program in package.programs:
            target = f"../lib/{package.name}/bin/{program}"
            assert files[f"./usr/bin/{program}"].linkname == target
            assert files[f"./usr/lib/{package.name}/bin/{program}"].mode == 0o755
            assert any(re.fullmatch(rf"\./usr/share/man/man\d/{program}\.\d\.gz", f) for f in files)
        assert {member.uid for member in files.values()} == {0}
    agent, server = listed(made["nodeagent"], "fsys"), listed(made["orch-server"], "fsys")
    for unit in (ROOT / "systemd").iterdir():
        holder = agent if unit.name.startswith("nodeagent") else server
        assert f"./usr/lib/systemd/system/{unit.name}" in holder
    assert not any("/orch/ctl" in name or "/orch/server" in name for name in agent)


@needs_dpkg
def test_the_packaged_prometheus_has_the_alerts_and_scrapes_what_they_ask(
    made: dict[str, Path], tmp_path: Path
) -> None:
    subprocess.run(["dpkg-deb", "-x", made["orch-server"], tmp_path], check=True)
    place = tmp_path / "usr/share/doc/orch-server/examples/prometheus/prometheus"
    packaged = yaml.safe_load((place / "orch.yml").read_text())
    deployed = yaml.safe_load((ROOT / "deploy/prometheus.yml").read_text())
    jobs = {job["job_name"] for job in packaged["scrape_configs"]}
    assert jobs == {job["job_name"] for job in deployed["scrape_configs"]}
    rules = [path for pattern in packaged["rule_files"] for path in place.glob(pattern)]
    assert sorted(path.read_bytes() for path in rules) == sorted(
        path.read_bytes() for path in (ROOT / "deploy/mixin").glob("*.yaml")
    )


@needs_dpkg
def test_the_dashboards_are_among_the_examples(made: dict[str, Path], tmp_path: Path) -> None:
    subprocess.run(["dpkg-deb", "-x", made["orch-server"], tmp_path], check=True)
    place = tmp_path / "usr/share/doc/orch-server/examples/dashboards"
    packaged = {path.name: path.read_bytes() for path in place.iterdir()}
    deployed = (ROOT / "deploy/mixin/dashboards").iterdir()
    assert packaged == {path.name: path.read_bytes() for path in deployed}
    assert "node.json" in packaged


@needs_dpkg
def test_the_agent_s_configuration_is_private_and_kept_at_upgrades(made: dict[str, Path]) -> None:
    control = subprocess.run(
        ["dpkg-deb", "-I", made["nodeagent"], "conffiles"],
        capture_output=True,
        text=True,
        check=True,
    )
    assert control.stdout == "/etc/nodeagent/config.yaml\n"
    files = listed(made["nodeagent"], "fsys")
    assert files["./etc/nodeagent"].mode == 0o700
    assert files["./etc/nodeagent/config.d"].mode == 0o700
    assert files["./etc/nodeagent/config.yaml"].mode == 0o600


@needs_dpkg
def test_the_packaged_agent_accepts_the_packaged_configuration(
    made: dict[str, Path], tmp_path: Path
) -> None:
    subprocess.run(["dpkg-deb", "-x", made["nodeagent"], tmp_path], check=True)
    done = subprocess.run(
        [sys.executable, "-m", "nodeagent.main", "config", "validate",
         f"--config={tmp_path}/etc/nodeagent/config.yaml",
         f"--config-dir={tmp_path}/etc/nodeagent/config.d"],
        env={"PYTHONPATH": f"{tmp_path}/usr/lib/nodeagent/shared:{LIBRARIES}"},
        cwd=tmp_path, capture_output=True, text=True,
    )  # fmt: skip
    assert done.stdout.startswith("valid: the main file"), done.stderr


@needs_dpkg
def test_no_address_of_a_machine_is_in_a_package(made: dict[str, Path]) -> None:
    control = subprocess.run(
        ["dpkg-deb", "-f", made["nodeagent"]], capture_output=True, text=True, check=True
    ).stdout
    found = re.findall(r"https?://([^/\s]+)", control)
    assert set(found) <= {"example.com"}


@pytest.mark.parametrize("script", SCRIPTS, ids=lambda path: f"{path.parent.name}-{path.name}")
def test_a_maintainer_script_is_shell(script: Path) -> None:
    shared = (PACKAGING / "deb/functions").read_text()
    own = script.with_name("functions")
    text = script.read_text().replace(
        "@FUNCTIONS@\n", shared + (own.read_text() if own.exists() else "")
    )
    done = subprocess.run(["sh", "-n"], input=text, capture_output=True, text=True)
    assert (done.returncode, done.stderr) == (0, "")
    assert "set -e" in text


@pytest.mark.slow
def test_a_cluster_runs_from_the_installed_wheel(own: Wheel, tmp_path: Path) -> None:
    """orch-up finds the other programs beside it, and no source tree."""
    place = tmp_path / "env"
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", place], check=True)
    pip = [sys.executable, "-m", "pip", "--quiet", "--disable-pip-version-check"]
    python = ["--python", place / "bin/python"]
    subprocess.run([*pip, *python, "install", "--no-deps", "--no-index", own.path], check=True)
    site = next(place.glob("lib/python*/site-packages"))
    (site / "libraries.pth").write_text(f"{LIBRARIES}\n")
    run_dir = tmp_path / "run"
    command = [place / "bin/orch-up", "--run-dir", run_dir, "--container-runtime-endpoint="]
    ports = [f"--{name}-port=0" for name in ("apiserver", "nodeagent", "healthz")]
    clean = {key: value for key, value in os.environ.items() if key != "PYTHONPATH"}
    cluster = subprocess.Popen([*command, *ports], cwd=tmp_path, env=clean)
    try:
        until((run_dir / "cluster.json").exists, "the cluster")
        done = subprocess.run(
            [place / "bin/orchctl", f"--kubeconfig={run_dir}/admin.kubeconfig", "get", "nodes"],
            capture_output=True, text=True, cwd=tmp_path, env=clean,
        )  # fmt: skip
        assert VERSION in done.stdout, done.stderr
    finally:
        cluster.send_signal(signal.SIGTERM)
        assert cluster.wait(timeout=60) == 0
