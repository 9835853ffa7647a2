"""The first line of the log."""

from nodeagent.config import options
from nodeagent.config.current import CurrentConfig
from nodeagent.config.types import NodeAgentConfiguration
from nodeagent.main import start_line
from nodeagent.wiring.base import build_base
from orch.component.flags.features import Features
from orch.wire import names

CURRENT = CurrentConfig(NodeAgentConfiguration())


def line(**gates: bool) -> str:
    given = options.parse(["--hostname-override=n1", "--config=/etc/agent.yaml"])
    base = build_base(given, CURRENT, Features(gates))
    return start_line(base, ("standalone: no API server (--kubeconfig is not given)",))


def test_it_names_version_node_configuration_and_what_is_missing() -> None:
    assert line().startswith(
        f"node agent {names.VERSION} for node n1: configuration {CURRENT.digest} from "
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
