"""Cases after pkg/kubelet/kubelet_node_status_test.go (upstream)."""

from dataclasses import replace

from nodeagent.node.rules import status
from nodeagent.node.rules.facts import DeviceFacts, ImageFacts, NodeFacts
from nodeagent.node.rules.pressure import PressureState
from nodeagent.node.rules.settings import NodeSettings
from nodeagent.pods.devices.inventory import ResourceCount
from nodeagent.runtime.isolation import RuntimeFeatures
from nodeagent.runtime.verdict import RuntimeHealth
from orch.wire.records.core import Node, NodeStatus
from tests.fakes import node


def registered(facts: NodeFacts, **settings: object) -> Node:
    return status.initial_node(node.settings(**settings), facts, PressureState(), "T1")


def reported(facts: NodeFacts, before: NodeStatus, now: str = "T2") -> NodeStatus:
    settings: NodeSettings = node.settings()
    said = status.condition_values(settings, facts, PressureState())
    return status.node_status(settings, facts, said, before, now)


def test_the_node_to_register_is_complete() -> None:
    made = registered(node.facts()).to_wire()
    assert made["metadata"] == {
        "name": "n1",
        "labels": {"orch.io/hostname": "host-1", "orch.io/os": "linux", "orch.io/arch": "amd64"},
    }
    said = made["status"]
    endpoint = {"Port": 10250}
    assert said["daemonEndpoints"] == {"nodeagentEndpoint": endpoint, "kubeletEndpoint": endpoint}
    assert said["capacity"]["cpu"] == "4" and said["allocatable"]["ephemeral-storage"] == "90Gi"
    assert said["nodeInfo"]["containerRuntimeVersion"] == "containerd://2.1.9"
    assert said["nodeInfo"]["kubeletVersion"] == "v0.1.0"
    assert said["addresses"][0] == {"type": "InternalIP", "address": "192.0.2.7"}
    assert said["conditions"][-1]["type"] == "Ready"
    assert "declaredFeatures" not in said


def test_a_node_is_registered_with_the_id_that_its_provider_gave_it() -> None:
    assert registered(node.facts(), provider_id="cloud://a").spec.providerID == "cloud://a"
    assert "providerID" not in registered(node.facts()).spec.to_wire()


def test_a_node_says_how_much_swap_it_has() -> None:
    def shown(swap_bytes: int) -> object:
        machine = replace(node.facts().machine, swap_bytes=swap_bytes)
        return registered(replace(node.facts(), machine=machine)).to_wire()["status"]["nodeInfo"]

    assert shown(4096)["swap"] == {"capacity": 4096}  # type: ignore[index]
    assert "swap" not in shown(0)  # type: ignore[operator]


def test_labels_of_the_flag_win_over_the_default_ones() -> None:
    made = registered(node.facts(), labels={"orch.io/hostname": "other", "rack": "7"})
    assert made.metadata.label("orch.io/hostname") == "other"
    assert made.metadata.label("rack") == "7"


def test_the_runtime_version_is_unknown_until_told_and_empty_without_one() -> None:
    untold = registered(node.facts(runtime=RuntimeHealth()))
    absent = registered(node.facts(runtime=RuntimeHealth(absent="none is configured")))
    assert untold.status.nodeInfo and absent.status.nodeInfo
    assert untold.status.nodeInfo.containerRuntimeVersion == "remote://Unknown"
    assert absent.status.nodeInfo.containerRuntimeVersion == ""


def test_images_are_the_largest_with_at_most_five_names() -> None:
    images = tuple(ImageFacts((f"i{n}",), n) for n in range(60))
    many = ImageFacts(tuple(f"n{n}" for n in range(9)), 1000)
    kept = registered(node.facts(images=(*images, many))).status.images or []
    assert len(kept) == 50 and kept[0].sizeBytes == 1000 and len(kept[0].names) == 5
    assert kept[1].sizeBytes == 59
    everything = registered(node.facts(images=images), max_images=-1).status.images or []
    assert len(everything) == 60


def test_declared_features_are_sorted_and_unique() -> None:
    made = registered(node.facts(), declared_features=("B", "A", "B"))
    assert made.status.declaredFeatures == ["A", "B"]


def test_what_the_runtime_has_is_told_as_far_as_pods_can_use_it() -> None:
    features = RuntimeFeatures(frozenset({"runc", ""}), True, recursive_readonly=frozenset({""}))
    told = registered(node.facts(features=features)).to_wire()["status"]
    assert told["features"] == {"supplementalGroupsPolicy": True}
    assert told["runtimeHandlers"] == [
        {"name": "", "features": {"recursiveReadOnlyMounts": True, "userNamespaces": False}},
        {"name": "runc", "features": {"recursiveReadOnlyMounts": False, "userNamespaces": False}},
    ]
    before = registered(node.facts(features=features)).status
    gone = status.patch(before, reported(node.facts(), before))["status"]
    assert gone == {"features": None, "runtimeHandlers": None, "conditions": gone["conditions"]}


def test_a_later_heartbeat_alone_is_nothing_new() -> None:
    before = registered(node.facts()).status
    after = reported(node.facts(), before)
    assert not status.differs(before, after)
    assert after.conditions and after.conditions[-1].lastHeartbeatTime == "T2"


def test_the_order_of_conditions_is_nothing_new() -> None:
    before = registered(node.facts()).status
    shuffled = before.model_copy(update={"conditions": list(reversed(before.conditions or []))})
    assert not status.differs(shuffled, reported(node.facts(), shuffled))


def test_what_others_write_into_the_status_is_nothing_new_and_is_kept() -> None:
    own = registered(node.facts()).status
    before = NodeStatus.model_validate({**own.to_wire(), "volumesAttached": [{"name": "disk"}]})
    after = reported(node.facts(), before)
    assert not status.differs(before, after)
    assert "volumesAttached" not in status.patch(before, after)["status"]


def test_everything_else_is_new() -> None:
    before = registered(node.facts()).status
    for facts in (
        node.facts(images=()),
        node.facts(addresses=()),
        node.facts(problems=("node is shutting down",)),
        node.facts(machine=node.machine(kernel_version="6.2.0")),
        node.facts(machine=node.machine(memory_bytes=1)),
    ):
        assert status.differs(before, reported(facts, before))


def test_the_patch_carries_only_the_fields_that_changed() -> None:
    before = registered(node.facts(), declared_features=()).status
    after = reported(node.facts(machine=node.machine(kernel_version="6.2.0")), before)
    changed = status.patch(before, after)["status"]
    assert set(changed) == {"conditions", "nodeInfo", "declaredFeatures"}
    assert changed["declaredFeatures"] is None


FOO, DONGLE = "example.com/foo", "example.com/dongle"


def offered(said: NodeStatus) -> tuple[dict[str, str], dict[str, str]]:
    """Extended resources of capacity and allocatable."""
    both = said.capacity or {}, said.allocatable or {}
    capacity, left = ({k: v for k, v in amounts.items() if "/" in k} for amounts in both)
    return capacity, left


def test_devices_are_in_capacity_and_those_that_are_healthy_in_allocatable() -> None:
    devices = DeviceFacts({FOO: ResourceCount(1024, 3)})
    assert offered(registered(node.facts(devices=devices)).status) == (
        {FOO: "1024"},
        {FOO: "3"},
    )


def test_extended_resources_that_others_wrote_stay() -> None:
    own = registered(node.facts()).status
    written = {**(own.capacity or {}), DONGLE: "4", "hugepages-7Ki": "1", "x.kubernetes.io/y": "1"}
    before = own.model_copy(update={"capacity": written})
    devices = DeviceFacts({FOO: ResourceCount(1, 0)})
    after = reported(node.facts(devices=devices), before)
    assert offered(after) == ({DONGLE: "4", FOO: "1"}, {DONGLE: "4", FOO: "0"})
    assert not status.differs(after, reported(node.facts(devices=devices), after))


def test_a_resource_whose_plugin_went_for_good_is_none() -> None:
    devices = DeviceFacts({FOO: ResourceCount(2, 2)})
    before = registered(node.facts(devices=devices)).status
    unknown = reported(node.facts(devices=DeviceFacts()), before)
    assert offered(unknown)[0] == {FOO: "2"}, "not before it is known which resources there are"
    after = reported(node.facts(devices=DeviceFacts({}, frozenset({FOO}))), before)
    assert offered(after) == ({FOO: "0"}, {FOO: "0"})


def test_what_an_earlier_life_of_the_node_offered_goes_with_its_file() -> None:
    own = registered(node.facts()).status
    before = own.model_copy(update={"capacity": {**(own.capacity or {}), FOO: "8"}})
    first = reported(node.facts(devices=DeviceFacts({}, is_first=True)), before)
    assert offered(first) == ({}, {})
