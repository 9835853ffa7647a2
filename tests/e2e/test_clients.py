"""Client libraries from PyPI against the API server, through their generic interfaces."""

from __future__ import annotations

import threading
from collections.abc import Generator, Iterator
from pathlib import Path
from typing import Any

import kubernetes
import lightkube
import pytest
from kubernetes.client.exceptions import ApiException
from kubernetes.dynamic import DynamicClient
from lightkube.core.exceptions import ApiError
from lightkube.generic_resource import create_global_resource, create_namespaced_resource
from lightkube.types import PatchType

from tests.e2e.apiserver import ApiServer, running

LEASES = {
    "group": "coordination.orch.io", "version": "v1", "namespace": "orch-node-lease",
    "plural": "leases",
}  # fmt: skip
API_VERSION = "coordination.orch.io/v1"


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ApiServer]:
    with running(tmp_path_factory.mktemp("clients"), "--serve-upstream-aliases") as server:
        yield server


@pytest.fixture(scope="module")
def connection(server: ApiServer) -> Iterator[kubernetes.client.ApiClient]:
    configuration = kubernetes.client.Configuration()
    kubernetes.config.load_kube_config(
        str(server.directory / "kubeconfig"), client_configuration=configuration
    )
    with kubernetes.client.ApiClient(configuration) as connection:
        yield connection
        connection.rest_client.pool_manager.clear()


@pytest.fixture(scope="module")
def light(server: ApiServer) -> Iterator[lightkube.Client]:
    config = lightkube.KubeConfig.from_file(server.directory / "kubeconfig")
    client = lightkube.Client(config=config)
    yield client
    client.close()


def lease(name: str) -> dict[str, Any]:
    return {
        "apiVersion": API_VERSION,
        "kind": "Lease",
        "metadata": {"name": name, "labels": {"made-by": name}},
        "spec": {"holderIdentity": name, "leaseDurationSeconds": 40},
    }


class Watching:
    """Events collected by a thread until there are enough of them."""

    def __init__(self, events: Generator[Any, None, None], enough: int) -> None:
        self.seen: list[Any] = []
        self._events, self._enough = events, enough
        self._thread = threading.Thread(target=self._collect, daemon=True)
        self._thread.start()

    def _collect(self) -> None:
        for event in self._events:
            self.seen.append(event)
            if len(self.seen) >= self._enough:
                self._events.close()  # lets go of the connection
                return

    def result(self) -> list[Any]:
        self._thread.join(timeout=30)
        assert not self._thread.is_alive(), f"only {self.seen}"
        return self.seen


def test_custom_objects_are_listed_watched_and_patched(
    connection: kubernetes.client.ApiClient,
) -> None:
    api = kubernetes.client.CustomObjectsApi(connection)
    first = api.create_namespaced_custom_object(body=lease("generic"), **LEASES)
    watch = kubernetes.watch.Watch()
    events = watch.stream(
        api.list_namespaced_custom_object, **LEASES,
        resource_version=first["metadata"]["resourceVersion"], label_selector="made-by=generic",
        timeout_seconds=20,
    )  # fmt: skip
    watching = Watching(events, enough=2)
    body = {"spec": {"holderIdentity": "other"}}
    patched = api.patch_namespaced_custom_object(name="generic", body=body, **LEASES)
    assert patched["spec"]["holderIdentity"] == "other"
    listed = api.list_namespaced_custom_object(label_selector="made-by=generic", **LEASES)
    assert [one["metadata"]["name"] for one in listed["items"]] == ["generic"]
    api.delete_namespaced_custom_object(name="generic", **LEASES)
    assert [event["type"] for event in watching.result()] == ["MODIFIED", "DELETED"]
    with pytest.raises(ApiException) as caught:
        api.get_namespaced_custom_object(name="generic", **LEASES)
    assert caught.value.status == 404


def test_the_dynamic_client_discovers_and_uses_every_kind(
    connection: kubernetes.client.ApiClient, tmp_path: Path
) -> None:
    dynamic = DynamicClient(connection, cache_file=str(tmp_path / "cache"))
    roles = dynamic.resources.get(kind="ClusterRole")  # it gives up when it finds several
    assert roles.group_version == "rbac.authorization.k8s.io/v1"
    rules = [{"verbs": ["get"], "apiGroups": [""], "resources": ["pods"]}]
    roles.create(body={"metadata": {"name": "found"}, "rules": rules})
    changed = [{**rules[0], "verbs": ["list"]}]
    roles.patch(name="found", body={"rules": changed}, content_type="application/merge-patch+json")
    assert roles.get(name="found").rules[0].verbs == ["list"]
    assert "found" in [role.metadata.name for role in roles.get().items]
    roles.delete(name="found")
    nodes = dynamic.resources.get(api_version="v1", kind="Node")
    nodes.create(body={"metadata": {"name": "d1"}})
    (event,) = Watching(nodes.watch(field_selector="metadata.name=d1", timeout=20), 1).result()
    assert (event["type"], event["object"].metadata.name) == ("ADDED", "d1")
    nodes.delete(name="d1")


def test_typed_calls_work_under_the_names_of_the_reference(
    connection: kubernetes.client.ApiClient,
) -> None:
    core = kubernetes.client.CoreV1Api(connection)
    core.create_namespace({"metadata": {"name": "typed"}})
    core.create_namespaced_config_map("typed", {"metadata": {"name": "c"}, "data": {"a": "b"}})
    assert core.read_namespaced_config_map("c", "typed").data == {"a": "b"}
    asked = kubernetes.client.V1ResourceAttributes(verb="get", resource="pods")
    review = kubernetes.client.V1SelfSubjectAccessReview(
        spec=kubernetes.client.V1SelfSubjectAccessReviewSpec(resource_attributes=asked)
    )
    authorization = kubernetes.client.AuthorizationV1Api(connection)
    assert authorization.create_self_subject_access_review(review).status.allowed
    leases = kubernetes.client.CoordinationV1Api(connection)
    body = {**lease("typed"), "apiVersion": "coordination.k8s.io/v1"}
    leases.create_namespaced_lease("kube-node-lease", body)
    read = leases.read_namespaced_lease("typed", "kube-node-lease")
    assert read.spec.holder_identity == "typed"
    leases.delete_namespaced_lease("typed", "kube-node-lease")
    core.delete_namespace("typed")


def test_lightkube_lists_watches_and_patches_generic_resources(light: lightkube.Client) -> None:
    leases = create_namespaced_resource("coordination.orch.io", "v1", "Lease", "leases")
    namespace = "orch-node-lease"
    created = light.create(leases(lease("light")), namespace=namespace)
    events = light.watch(
        leases, namespace=namespace, labels={"made-by": "light"},
        resource_version=created.metadata.resourceVersion, server_timeout=20,
    )  # fmt: skip
    watching = Watching(events, enough=2)
    patch = {"spec": {"holderIdentity": "other"}}
    changed = light.patch(leases, "light", patch, namespace=namespace, patch_type=PatchType.MERGE)
    assert changed.spec["holderIdentity"] == "other"
    assert [one.metadata.name for one in light.list(leases, namespace=namespace)] == ["light"]
    light.delete(leases, "light", namespace=namespace)
    assert [kind for kind, _ in watching.result()] == ["MODIFIED", "DELETED"]
    with pytest.raises(ApiError) as caught:
        light.get(leases, "light", namespace=namespace)
    assert caught.value.status.code == 404


def test_lightkube_patches_cluster_objects_in_every_form(light: lightkube.Client) -> None:
    roles = create_global_resource(
        "rbac.authorization.orch.io", "v1", "ClusterRole", "clusterroles"
    )
    light.create(roles({"metadata": {"name": "light"}, "rules": []}))
    label = {"metadata": {"labels": {"a": "b"}}}
    operation = [{"op": "add", "path": "/metadata/labels/c", "value": "d"}]
    light.patch(roles, "light", label, patch_type=PatchType.STRATEGIC)
    light.patch(roles, "light", operation, patch_type=PatchType.JSON)
    assert light.get(roles, "light").metadata.labels == {"a": "b", "c": "d"}
    light.delete(roles, "light")


def test_a_refusal_reaches_the_caller_as_a_status(light: lightkube.Client) -> None:
    leases = create_namespaced_resource("coordination.orch.io", "v1", "Lease", "leases")
    body = lease("bad")
    body["spec"]["leaseDurationSeconds"] = "30"
    with pytest.raises(ApiError) as caught:
        light.create(leases(body), namespace="orch-node-lease")
    assert "spec.leaseDurationSeconds" in str(caught.value)


def test_both_libraries_apply_at_the_server_and_are_told_of_conflicts(
    connection: kubernetes.client.ApiClient, light: lightkube.Client, tmp_path: Path
) -> None:
    dynamic = DynamicClient(connection, cache_file=str(tmp_path / "cache"))
    maps = dynamic.resources.get(api_version="v1", kind="ConfigMap")
    wanted = {
        "apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "shared"},
        "data": {"a": "1"},
    }  # fmt: skip
    made = dynamic.server_side_apply(maps, wanted, namespace="default", field_manager="python")
    assert [entry.manager for entry in made.metadata.managedFields] == ["python"]
    generic = create_namespaced_resource("", "v1", "ConfigMap", "configmaps")
    other = generic({**wanted, "data": {"a": "2"}})
    with pytest.raises(ApiError) as caught:
        light.apply(other, namespace="default", field_manager="light")
    assert 'conflict with "python": .data.a' in str(caught.value)
    forced = light.apply(other, namespace="default", field_manager="light", force=True)
    assert forced["data"] == {"a": "2"}
    # As the reference's alias, where the object is the same.
    rbac = "rbac.authorization.k8s.io/v1"
    roles = dynamic.resources.get(kind="ClusterRole")
    role = {
        "apiVersion": rbac, "kind": "ClusterRole", "metadata": {"name": "applied"},
        "rules": [{"apiGroups": ["coordination.k8s.io"], "resources": ["leases"],
                   "verbs": ["get"]}],
    }  # fmt: skip
    for _ in range(2):
        stored = dynamic.server_side_apply(roles, role, field_manager="python")
        assert [entry.apiVersion for entry in stored.metadata.managedFields] == [rbac]
    own = create_global_resource("rbac.authorization.orch.io", "v1", "ClusterRole", "clusterroles")
    changed = own({
        **role, "apiVersion": "rbac.authorization.orch.io/v1", "rules": [],
    })  # fmt: skip
    with pytest.raises(ApiError) as caught:
        light.apply(changed, field_manager="light")
    assert 'conflict with "python": .rules' in str(caught.value)
    light.delete(own, "applied")
    light.delete(generic, "shared", namespace="default")
