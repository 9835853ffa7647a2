"""The first line of the log."""

from nodeagent.config.types import NodeAgentConfiguration
from nodeagent.main import start_line
from orch.component.flags.features import Features
from orch.wire import names


def line(**gates: bool) -> str:
    return start_line(
        NodeAgentConfiguration(),
        Features(gates),
        node_name="n1",
        source="/etc/agent.yaml",
        digest="0123456789ab",
        missing=("standalone: no API server (--kubeconfig is not given)",),
    )


def test_it_names_version_node_configuration_and_what_is_missing() -> None:
    assert line().startswith(
        f"node agent {names.VERSION} for node n1: configuration 0123456789ab from "
        "/etc/agent.yaml; serving 0.0.0.0:10250; "
        "standalone: no API server (--kubeconfig is not given); features on: "
    )
    assert "\n" not in line()


def test_it_names_every_gate_and_why_it_is_off() -> None:
    told = line(NodeAgentPSI=False, ComponentFlagz=True)
    for gate, _ in Features({}).all():
        assert gate.name in told
    assert "NodeAgentPSI (switched off)" in told
    assert "ComponentStatusz (alpha)" in told
    assert told.endswith("; gates set: ComponentFlagz=true, NodeAgentPSI=false")
