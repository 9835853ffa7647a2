"""Zone, region and instance type: from the configuration, and from the provider's file."""

from __future__ import annotations

from pathlib import Path

import pytest

from nodeagent.config.layers import ConfigError
from nodeagent.config.provider import node_provider
from nodeagent.config.types import NodeAgentConfiguration, NodeProvider
from nodeagent.node.rules.settings import node_settings
from orch.component.flags.features import Features


def config(path: Path | str = "", **own: str) -> NodeAgentConfiguration:
    return NodeAgentConfiguration(nodeProvider=NodeProvider(**own), nodeProviderFile=str(path))


def test_without_a_file_the_configuration_is_used() -> None:
    assert node_provider(config(zone="z1")) == NodeProvider(zone="z1")


def test_the_file_fills_what_the_configuration_leaves_open(tmp_path: Path) -> None:
    path = tmp_path / "provider.yaml"
    path.write_text('{"zone": "z2", "region": "r2", "instanceType": "m4"}')
    found = node_provider(config(path, zone="z1"))
    assert found == NodeProvider(zone="z1", region="r2", instanceType="m4")


def test_an_empty_file_has_no_effect(tmp_path: Path) -> None:
    path = tmp_path / "provider.yaml"
    path.write_text("")
    assert node_provider(config(path)) == NodeProvider()


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("zone: z\nrack: 7\n", ":2: rack: there is no such field"),
        ("region: [a]\n", ":1: region: must be a valid string"),
        ("zone: z\nzone: y\n", ":2: "),
        ("[1]\n", ":1: "),
        ("zone: a b\n", ":1: zone: 'a b': a valid label must be"),
        (None, ": No such file or directory"),
    ],
)
def test_a_wrong_file_is_one_line_with_its_place(
    tmp_path: Path, text: str | None, told: str
) -> None:
    path = tmp_path / "provider.yaml"
    if text is not None:
        path.write_text(text)
    with pytest.raises(ConfigError) as caught:
        node_provider(config(path))
    assert str(caught.value).startswith(f"nodeProviderFile: {path}{told}")
    assert "\n" not in str(caught.value)


def test_known_values_become_labels_and_flags_win() -> None:
    settings = node_settings(
        NodeAgentConfiguration(),
        node_name="n1",
        agent_version="v1",
        agent_port=10250,
        node_labels={"topology.orch.io/zone": "by-flag"},
        features=Features({}),
        provider=NodeProvider(zone="z", region="r"),
    )
    assert settings.labels == {
        "topology.orch.io/zone": "by-flag",
        "topology.orch.io/region": "r",
    }
