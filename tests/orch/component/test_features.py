"""Feature gates: defaults, stages switched as a whole, unknown names."""

import pytest

from orch.component.features import FeatureError, Features

# settings → ContainerCheckpoint, NodeAgentPSI
DECISIONS = [
    ({}, True, True),
    ({"ContainerCheckpoint": False}, False, True),
    ({"AllBeta": False}, False, False),
    ({"AllBeta": False, "NodeAgentPSI": True}, False, True),
    ({"AllAlpha": True}, True, True),
]


@pytest.mark.parametrize(("settings", "checkpoint", "psi"), DECISIONS)
def test_a_gate_named_by_itself_wins_over_its_stage_and_its_default(
    settings: dict[str, bool], checkpoint: bool, psi: bool
) -> None:
    features = Features(settings)
    assert features.enabled("ContainerCheckpoint") is checkpoint
    assert features.enabled("NodeAgentPSI") is psi


def test_an_unknown_gate_is_refused_with_the_nearest_name() -> None:
    with pytest.raises(FeatureError, match="did you mean ContainerCheckpoint"):
        Features({"ContainerCheckpiont": True})


def test_a_stable_gate_cannot_be_switched_off() -> None:
    with pytest.raises(FeatureError, match="ComponentSLIs is stable"):
        Features({"ComponentSLIs": False})


def test_every_gate_is_listed_with_its_state() -> None:
    assert {gate.name: on for gate, on in Features({}).all()}["ContainerCheckpoint"] is True
