import pytest

from nodeagent.config.types import NodeAgentConfiguration
from nodeagent.node.rules.contention import KINDS, SYSTEM_DISK
from nodeagent.node.rules.settings import NodeSettings, node_settings, start_problems
from orch.component.flags.features import Features
from tests.fakes import node


def made(config: dict[str, object], **gates: bool) -> NodeSettings:
    return node_settings(
        NodeAgentConfiguration.model_validate(config),
        node_name="n1",
        agent_version="v0.1.0",
        agent_port=10250,
        node_labels={},
        features=Features(gates),
    )


def test_the_defaults_are_those_of_the_configuration() -> None:
    settings = made({})
    assert settings.max_pods == 110 and settings.pressure_transition_s == 300
    assert {t.signal for t in settings.thresholds} == {
        "memory.available",
        "nodefs.available",
        "nodefs.inodesFree",
        "imagefs.available",
        "imagefs.inodesFree",
        "checkpoints.room",
    }
    assert settings.declared_features is None


def test_reservations_add_up_and_taints_are_taken_over() -> None:
    settings = made(
        {
            "systemReserved": {"cpu": "500m", "memory": "1Gi"},
            "nodeagentReserved": {"cpu": "1"},
            "registerWithTaints": [{"key": "dedicated", "effect": "NoSchedule"}],
        }
    )
    assert settings.reserved == {"cpu": 1500, "memory": 1024**3}
    assert settings.taints[0].to_wire() == {"key": "dedicated", "effect": "NoSchedule"}


def test_stalls_have_thresholds_only_with_their_gate() -> None:
    assert made({}).contention == {}
    shown = made({"systemDiskContentionThreshold": 55.5}, PSINodeCondition=True).contention
    assert (set(shown), shown[SYSTEM_DISK]) == (set(KINDS), 55.5)


def test_declared_are_the_features_in_development_that_are_on() -> None:
    named = made({}, NodeDeclaredFeatures=True, NodeAgentPSITriggers=True, NodeAgentPSI=False)
    declared = set(named.declared_features or ())
    assert {"NodeDeclaredFeatures", "NodeAgentPSITriggers", "ContainerCheckpoint"} <= declared
    assert not declared & {"NodeAgentPSI", "ComponentFlagz", "ComponentSLIs"}, "off, off, stable"
    assert "ComponentFlagz" in (made({}, AllAlpha=True).declared_features or ())


def test_a_reservation_beyond_the_machine_and_a_bad_address_keep_it_from_starting() -> None:
    settings = made({"systemReserved": {"memory": "9Gi", "cpu": "1"}})
    problems = start_problems(settings, node.machine(), "0.0.0.0")
    assert ["9Gi memory" in problems[0], "--node-ip 0.0.0.0" in problems[1]] == [True, True]
    assert start_problems(made({}), node.machine(), "") == []
    unknown = node.machine(memory_bytes=0)
    assert start_problems(settings, unknown, "192.0.2.1") == []


def test_every_bad_label_is_named() -> None:
    with pytest.raises(ValueError, match=r"a b.*must not set orch.io/x"):
        node_settings(
            NodeAgentConfiguration(),
            node_name="n1",
            agent_version="v",
            agent_port=1,
            node_labels={"rack": "a b", "orch.io/x": "1"},
            features=Features({}),
        )
