"""The contract of RUN_DIR."""

from __future__ import annotations

from pathlib import Path

import pytest

from nodeagent.config.load import load_config
from orch.up.layout import Layout

PLACES = {
    "pki": "pki",
    "logs": "logs",
    "agent_root": "nodeagent",
    "agent_config": "nodeagent.conf",
    "agent_drop_ins": "nodeagent.conf.d",
    "manifests": "manifests",
    "runtime": "runtime",
    "store": "apiserver",
    "cluster_file": "cluster.json",
}


@pytest.mark.parametrize("name", PLACES)
def test_everything_has_its_place(name: str) -> None:
    assert getattr(Layout(Path("/run/it")), name) == Path("/run/it") / PLACES[name]


def test_no_place_is_without_a_case_here() -> None:
    assert set(vars(Layout(Path("/run/it")))) == {"run_dir", *PLACES}


def test_a_kubeconfig_is_named_for_its_user() -> None:
    assert Layout(Path("/run/it")).kubeconfig("admin") == Path("/run/it/admin.kubeconfig")


def test_directories_with_secrets_are_private_and_the_runtimes_is_left_to_its_tool(
    tmp_path: Path,
) -> None:
    layout = Layout(tmp_path / "deep" / "run")
    layout.make()
    made = {path.name: path.stat().st_mode & 0o077 for path in layout.run_dir.iterdir()}
    assert set(made) == {"pki", "logs", "nodeagent", "nodeagent.conf.d", "manifests", "apiserver"}
    assert [made[name] for name in ("pki", "nodeagent", "apiserver")] == [0, 0, 0]


def test_what_exists_is_kept(tmp_path: Path) -> None:
    layout = Layout(tmp_path)
    layout.make()
    (layout.manifests / "mine.yaml").write_text("mine")
    layout.logs.chmod(0o711)
    layout.make()
    assert (layout.manifests / "mine.yaml").read_text() == "mine"
    assert layout.logs.stat().st_mode & 0o777 == 0o711


@pytest.fixture
def layout(tmp_path: Path) -> Layout:
    layout = Layout(tmp_path / "run")
    layout.make()
    return layout


def test_the_agent_reads_the_configuration_written_for_it(layout: Layout) -> None:
    layout.write_agent_files(with_demo=False)
    config = load_config(str(layout.agent_config), str(layout.agent_drop_ins))
    assert config.staticPodPath == str(layout.manifests)
    assert config.podLogsDir == str(layout.logs / "pods")
    assert config.podAPIServer == ""
    assert layout.agent_config.stat().st_mode & 0o077 == 0


def test_the_agent_tells_pods_the_address_that_they_reach(layout: Layout) -> None:
    layout.write_agent_files(with_demo=False, pod_api_server="https://192.0.2.1:6443")
    config = load_config(str(layout.agent_config), str(layout.agent_drop_ins))
    assert config.podAPIServer == "https://192.0.2.1:6443"


def test_the_demonstration_is_written_once_and_only_with_a_provisioned_runtime(
    layout: Layout,
) -> None:
    demo = layout.manifests / "demo.yaml"
    layout.write_agent_files(with_demo=False)
    assert not demo.exists()
    layout.write_agent_files(with_demo=True)
    assert "kind: Pod" in demo.read_text()
    demo.rename(layout.manifests / "mine.yaml")
    layout.write_agent_files(with_demo=True)
    assert not demo.exists()
