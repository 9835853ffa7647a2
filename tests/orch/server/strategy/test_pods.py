from __future__ import annotations

import copy

import pytest

from orch.server.strategy.pods import STRATEGY


def created(**spec):
    document = {"metadata": {"name": "p"}, "spec": {"containers": [{"name": "c", "image": "i"}]}}
    document["spec"] |= spec
    STRATEGY.prepare_create(document)
    return document


def test_a_new_pod_is_pending_whatever_its_author_says() -> None:
    document = {
        "metadata": {"name": "p"},
        "spec": {"containers": [{"name": "c", "image": "i"}]},
        "status": {"phase": "Running", "podIP": "1.2.3.4"},
    }
    STRATEGY.prepare_create(document)
    assert document["status"] == {"phase": "Pending", "qosClass": "BestEffort"}
    assert document["metadata"]["generation"] == 1


def test_a_new_pod_with_gates_says_that_they_hold_it() -> None:
    gated = created(schedulingGates=[{"name": "wait"}])
    assert gated["status"]["conditions"] == [
        {
            "type": "PodScheduled",
            "status": "False",
            "reason": "SchedulingGated",
            "message": "Scheduling is blocked due to non-empty scheduling gates",
        }
    ]
    assert "conditions" not in created(schedulingGates=[])["status"]


def test_a_bad_quantity_is_a_cause_and_not_a_crash() -> None:
    containers = [{"name": "c", "image": "i", "resources": {"limits": {"cpu": "lots"}}}]
    document = created(containers=containers)
    assert "qosClass" not in document["status"]
    fields = [cause.field for cause in STRATEGY.validate(document, None)]
    assert "spec.containers[0].resources.limits[cpu]" in fields


def test_an_update_keeps_the_status_and_an_update_of_status_the_rest() -> None:
    old = created()
    old["status"] = {"phase": "Running", "qosClass": "Burstable"}
    old["metadata"]["ownerReferences"] = [{"uid": "1"}]
    new = copy.deepcopy(old) | {"status": {"phase": "Failed"}}
    STRATEGY.prepare_update(new, old)
    assert new["status"] == old["status"]
    new = copy.deepcopy(old) | {"status": {"phase": "Failed"}, "spec": {}}
    new["metadata"]["ownerReferences"] = []
    STRATEGY.prepare_status(new, old)
    assert new["spec"] == old["spec"]
    assert new["status"] == {"phase": "Failed", "qosClass": "Burstable"}
    assert new["metadata"]["ownerReferences"] == [{"uid": "1"}]


@pytest.mark.parametrize(
    ("before", "after", "allowed"),
    [
        ({}, {}, True),
        ({"orch.io/config.mirror": "h"}, {"orch.io/config.mirror": "h", "a": "b"}, True),
        ({"orch.io/config.mirror": "h"}, {}, False),
        ({"orch.io/config.mirror": "h"}, None, False),
        ({"orch.io/config.mirror": "h"}, {"orch.io/config.mirror": "g"}, False),
        ({}, {"orch.io/config.mirror": ""}, False),
    ],
)
def test_a_pod_stays_a_mirror_pod_or_none(before, after, allowed) -> None:
    old = created()
    old["metadata"]["annotations"] = before
    new = copy.deepcopy(old)
    new["metadata"]["annotations"] = after
    fields = [cause.field for cause in STRATEGY.validate(new, old)]
    assert fields == ([] if allowed else ["metadata.annotations[orch.io/config.mirror]"])


@pytest.mark.parametrize(("placed", "allowed"), [({"nodeName": "n1"}, True), ({}, False)])
def test_a_mirror_pod_is_on_its_node_from_the_beginning(placed, allowed) -> None:
    new = created(**placed)
    new["metadata"]["annotations"] = {"orch.io/config.mirror": "h"}
    fields = [cause.field for cause in STRATEGY.validate(new, None)]
    assert fields == ([] if allowed else ["metadata.annotations[orch.io/config.mirror]"])


@pytest.mark.parametrize("annotations", [{}, {"orch.io/config.mirror": "h"}])
def test_a_pod_of_an_older_release_can_still_be_changed(annotations) -> None:
    pod = {
        "metadata": {"name": "p", "annotations": annotations},
        "spec": {"containers": [{"name": "c", "image": "i", "livenessProbe": {}}], "nodeName": "n"},
    }
    assert list(STRATEGY.validate(pod, None))  # a new one is refused
    changed = copy.deepcopy(pod)
    changed["metadata"]["labels"] = {"a": "b"}
    changed["spec"]["containers"][0]["image"] = "j"
    assert not list(STRATEGY.validate(changed, pod))


def test_a_replacement_is_completed_like_a_new_pod() -> None:
    old = created()
    new = {"metadata": {}, "spec": {"containers": [{"name": "c", "image": "i"}]}}
    STRATEGY.prepare_update(new, old)
    assert new["spec"] == old["spec"]
    assert "generation" not in new["metadata"]


@pytest.mark.parametrize(("after", "allowed"), [(5, True), (4, True), (6, False), (None, False)])
def test_a_deadline_is_only_brought_nearer(after, allowed) -> None:
    old = created(activeDeadlineSeconds=5)
    new = copy.deepcopy(old)
    new["spec"]["activeDeadlineSeconds"] = after
    fields = [cause.field for cause in STRATEGY.validate(new, old)]
    assert fields == ([] if allowed else ["spec.activeDeadlineSeconds"])


@pytest.mark.parametrize(
    ("change", "allowed"),
    [  # K:pkg/apis/core/validation/validation_test.go TestValidatePodUpdate
        ({}, True),
        ({"containers": [{"name": "c", "image": "other"}]}, True),
        ({"activeDeadlineSeconds": 5}, True),
        ({"tolerations": [{"key": "x", "operator": "Exists"}]}, True),
        ({"nodeName": "n1"}, False),
        ({"restartPolicy": "Never"}, False),
        ({"hostNetwork": True}, False),
        ({"terminationGracePeriodSeconds": 5}, False),
        ({"containers": [{"name": "d", "image": "i"}]}, False),
        ({"containers": [{"name": "c", "image": "i"}, {"name": "d", "image": "i"}]}, False),
        ({"containers": [{"name": "c", "image": "i", "command": ["x"]}]}, False),
        ({"containers": [{"name": "c", "image": ""}]}, False),
    ],
)
def test_of_a_spec_only_images_deadlines_and_tolerations_change(change, allowed) -> None:
    old = created()
    new = copy.deepcopy(old)
    if "tolerations" in change:
        change = {"tolerations": [*old["spec"]["tolerations"], *change["tolerations"]]}
    new["spec"] |= change
    STRATEGY.prepare_update(new, old)
    assert (not list(STRATEGY.validate(new, old))) is allowed


def test_tolerations_are_not_taken_away() -> None:
    old = created()
    new = copy.deepcopy(old)
    new["spec"]["tolerations"] = old["spec"]["tolerations"][:1]
    assert [c.field for c in STRATEGY.validate(new, old)] == ["spec.tolerations"]


EPHEMERAL = STRATEGY.parts["ephemeralcontainers"]
DEBUG = {"name": "debug", "image": "i", "targetContainerName": "c"}


def test_there_only_ephemeral_containers_are_taken_of_what_is_sent() -> None:
    old = created()
    before = copy.deepcopy(old)
    new = copy.deepcopy(old)
    new["metadata"]["labels"] = {"a": "b"}
    new["status"] = {"phase": "Failed"}
    new["spec"] |= {"hostNetwork": True, "ephemeralContainers": [dict(DEBUG)]}
    EPHEMERAL.prepare_update(new, old)
    assert old == before
    assert new["metadata"] == {**before["metadata"], "generation": 2}
    assert new["status"] == before["status"]
    (debug,) = new["spec"].pop("ephemeralContainers")
    assert new["spec"] == before["spec"]
    assert (debug["imagePullPolicy"], debug["targetContainerName"]) == ("Always", "c")


def test_the_same_again_is_no_new_generation() -> None:
    old = created()
    old["spec"]["ephemeralContainers"] = [dict(DEBUG)]
    new = copy.deepcopy(old)
    EPHEMERAL.prepare_update(new, old)
    assert new["metadata"]["generation"] == 2  # defaults are filled in
    again = copy.deepcopy(new)
    EPHEMERAL.prepare_update(again, new)
    assert again == new


def test_they_are_not_set_on_create_nor_added_to_a_static_pod() -> None:
    fields = [
        cause.field for cause in STRATEGY.validate(created(ephemeralContainers=[DEBUG]), None)
    ]
    assert fields == ["spec.ephemeralContainers"]
    mirror = created(ephemeralContainers=[DEBUG], nodeName="n1")
    mirror["metadata"]["annotations"] = {"orch.io/config.mirror": "x"}
    more = copy.deepcopy(mirror)
    more["spec"]["ephemeralContainers"].append({**DEBUG, "name": "more"})
    (cause,) = EPHEMERAL.validate(more, mirror)
    assert cause.message == "Forbidden: static pods do not support ephemeral containers"


def test_elsewhere_they_do_not_change() -> None:
    old = created()
    new = copy.deepcopy(old)
    new["spec"]["ephemeralContainers"] = [dict(DEBUG)]
    assert [cause.field for cause in STRATEGY.validate(new, old)] == ["spec"]


def test_the_apparmor_profile_in_an_annotation_cannot_be_loosened() -> None:
    key = "container.apparmor.security.beta.kubernetes.io/c"
    old = created()
    old["metadata"]["annotations"] = {key: "runtime/default"}
    new = copy.deepcopy(old)
    new["metadata"]["annotations"][key] = "unconfined"
    [cause] = STRATEGY.validate(new, old)
    assert cause.field == f"metadata.annotations[{key}]"
    assert list(STRATEGY.validate(copy.deepcopy(old), old)) == []


@pytest.mark.parametrize(
    ("spec", "asked_s", "grace_s"),
    [
        ({}, None, 0),
        ({"nodeName": "n"}, None, 30),
        ({"nodeName": "n", "terminationGracePeriodSeconds": 5}, None, 5),
        ({"nodeName": "n", "terminationGracePeriodSeconds": 5}, 0, 0),
        ({"nodeName": "n", "terminationGracePeriodSeconds": -5}, None, 1),
        ({"nodeName": "n", "terminationGracePeriodSeconds": 5}, -1, 1),
        ({"nodeName": "n", "terminationGracePeriodSeconds": 2**62}, None, 2**31 - 1),
    ],
)
def test_a_negative_grace_period_is_one_second(spec, asked_s, grace_s) -> None:
    assert STRATEGY.grace_s({"spec": spec}, asked_s) == grace_s


def test_a_volume_without_a_source_is_an_empty_directory() -> None:
    document = created(volumes=[{"name": "a"}, {"name": "b", "hostPath": None}])
    sources = [volume.get("emptyDir") for volume in document["spec"]["volumes"]]
    assert sources == [{}, {}]
