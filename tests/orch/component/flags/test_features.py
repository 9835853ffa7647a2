"""Feature gates: defaults, stages switched as a whole, unknown names."""

from pathlib import Path

import pytest

from orch.component.flags import reference_gates
from orch.component.flags.features import FeatureError, Features
from orch.component.flags.stability import parse_release

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


def test_a_gate_that_resembles_none_is_to_be_left_out() -> None:
    with pytest.raises(FeatureError, match=r"there is no feature gate Foo; leave it out$"):
        Features({"Foo": True})


def test_a_stable_gate_cannot_be_switched_off() -> None:
    with pytest.raises(FeatureError, match="ComponentSLIs is stable"):
        Features({"ComponentSLIs": False})


def test_every_gate_is_listed_with_its_state() -> None:
    assert {gate.name: on for gate, on in Features({}).all()}["ContainerCheckpoint"] is True


# Name, stage, default, since: spec.md, "Versioning" and "Resources"; the last ones are ours.
STATED = [
    ("ComponentSLIs", "", True, "1.32"),
    ("ComponentStatusz", "ALPHA", False, "1.32"),
    ("ComponentFlagz", "ALPHA", False, "1.32"),
    ("ContainerCheckpoint", "BETA", True, "1.30"),
    ("PodAndContainerStatsFromCRI", "ALPHA", False, "1.23"),
    ("ResourceHealthStatus", "ALPHA", False, "1.31"),
    ("NodeAgentPSI", "BETA", True, "1.34"),
    ("InPlacePodVerticalScaling", "", True, "1.35"),
    ("MemoryQoS", "ALPHA", False, "1.22"),
    ("NodeAgentFineGrainedAuthz", "BETA", True, "1.33"),
    ("NodeAgentPSITriggers", "ALPHA", False, "1.35"),
    ("NodeDeclaredFeatures", "ALPHA", False, "1.35"),
    ("PSINodeCondition", "ALPHA", False, "1.35"),
    ("PodBinding", "BETA", True, "1.35"),
]


@pytest.mark.parametrize(("name", "stage", "default", "since"), STATED)
def test_a_gate_is_as_stated(name: str, stage: str, default: bool, since: str) -> None:
    (gate,) = [gate for gate, _ in Features({}).all() if gate.name == name]
    assert (gate.stage.value, gate.default, gate.since) == (stage, default, since)
    assert Features({}).enabled(name) is default


def test_every_gate_is_stated() -> None:
    """A new gate needs its line above, and one in docs/feature-gates.md."""
    names = {gate.name for gate, _ in Features({}).all()}
    assert names == {name for name, *_ in STATED}
    page = (Path(__file__).parents[4] / "docs" / "feature-gates.md").read_text()
    assert {name for name in names if f"`{name}`" not in page} == set()


def test_a_stage_is_switched_as_a_whole_and_stable_gates_are_not() -> None:
    everything = Features({"AllAlpha": True, "AllBeta": False})
    assert {name: everything.enabled(name) for name, *_ in STATED} == {
        name: stage != "BETA" for name, stage, *_ in STATED
    }


# name, emulated release, stage then (None: it did not exist), on by default then
EMULATED = [
    ("ComponentSLIs", "1.31", "BETA", True),
    ("NodeAgentPSI", "1.33", "ALPHA", False),
    ("NodeAgentPSI", "1.32", None, False),
    ("NodeDeclaredFeatures", "1.34", None, False),
    ("NodeAgentFineGrainedAuthz", "1.34", "BETA", True),
    ("NodeAgentFineGrainedAuthz", "1.32", "ALPHA", False),
    ("ContainerCheckpoint", "1.34", "BETA", True),
]


@pytest.mark.parametrize(("name", "release", "stage", "on"), EMULATED)
def test_an_emulated_release_has_features_as_they_were_then(
    name: str, release: str, stage: str | None, on: bool
) -> None:
    features = Features({}, parse_release(release))
    stages = {gate.name: gate.stage.value for gate, _ in features.all()}
    assert stages.get(name) == stage
    assert features.enabled(name) is on


def test_what_an_emulated_release_does_not_have_cannot_be_switched() -> None:
    with pytest.raises(FeatureError, match=r"NodeDeclaredFeatures does not exist in 1\.34"):
        Features({"NodeDeclaredFeatures": True}, parse_release("1.34"))
    assert not Features({"AllAlpha": True}, parse_release("1.34")).enabled("NodeDeclaredFeatures")


def test_what_became_stable_since_can_be_switched_in_the_release_before() -> None:
    older = Features({"ComponentSLIs": False}, parse_release("1.31"))
    assert not older.enabled("ComponentSLIs")


@pytest.mark.parametrize(
    ("name", "default"),
    [("KubeletTracing", True), ("GracefulNodeShutdown", True), ("CSIVolumeHealth", False)],
)
def test_a_gate_that_only_the_reference_has_can_be_given_as_it_is_there(
    name: str, default: bool
) -> None:
    Features({name: default})
    with pytest.raises(FeatureError, match=rf"^not offered here: {name} cannot be switched"):
        Features({name: not default})


def test_the_gate_of_a_field_of_the_agent_can_be_given_either_way() -> None:
    for value in (True, False):
        Features({"RotateKubeletServerCertificate": value})


def test_a_promise_that_is_not_kept_cannot_be_asked_for_by_a_gate() -> None:
    with pytest.raises(FeatureError, match=r"^not offered here: KubeletEnsureSecretPulledImages"):
        Features({"KubeletEnsureSecretPulledImages": True})


def test_a_gate_of_ours_can_be_given_by_the_name_that_the_reference_has_for_it() -> None:
    assert not Features({"KubeletPSI": False}).enabled("NodeAgentPSI")


def test_no_gate_is_both_ours_and_only_of_the_reference() -> None:
    own = {gate.name for gate, _ in Features({}).all()}
    assert own.isdisjoint(reference_gates.DEFAULTS)
    assert own >= set(reference_gates.RENAMED.values())
