"""A tenant of a `restricted` namespace tries to become root on a node; nothing may get through.

The tenant has `edit`, and more than that: it may bind pods, report their status and add ephemeral
containers. What counts is what an agent would read from the server afterwards.
"""

from __future__ import annotations

import contextlib
import copy
import http.client
import json
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

import psutil
import pytest
from google.protobuf import json_format

from orch.server.request import kinds_pb2
from orch.wire.names import ANNOTATION_CONFIG_MIRROR, ANNOTATION_CONFIG_SOURCE
from orch.wire.podrules.podspec import all_containers
from orch.wire.records.pods import Container, Pod
from tests.attacks import harness
from tests.attacks.harness import OPERATOR, TENANT, Attacked
from tests.orch.server.admission.pod_security.cases import CASES, Case
from tests.orch.server.request.test_protobuf import envelope

NAMESPACE = f"/api/v1/namespaces/{TENANT}"
PODS = f"{NAMESPACE}/pods"
LABELS = {"pod-security.kubernetes.io/enforce": "restricted"}
JSON = "application/json"
PROTOBUF = "application/vnd.kubernetes.protobuf"
MERGE = "application/merge-patch+json"
STRATEGIC = "application/strategic-merge-patch+json"
JSON_PATCH = "application/json-patch+json"
NEWEST = 35
PRIVILEGED = {"privileged": True, "allowPrivilegeEscalation": True}

BAD = {name: case.made() for name, case in CASES.items() if case.is_refused("restricted", NEWEST)}
BAD |= {
    "Windows with capabilities": Case(
        container={"capabilities": {"add": ["SYS_ADMIN"]}}, spec={"os": {"name": "windows"}}
    ).made(),
    "oddly Windows": Case(
        container={"capabilities": {"add": ["SYS_ADMIN"]}}, spec={"os": {"name": ["windows"]}}
    ).made(),
    "a mirror": Case(
        container=PRIVILEGED,
        spec={"nodeName": harness.NODE},
        annotations={ANNOTATION_CONFIG_MIRROR: "x", ANNOTATION_CONFIG_SOURCE: "file"},
    ).made(),
    "bound at once": Case(container=PRIVILEGED, spec={"nodeName": harness.NODE}).made(),
    "of an unknown class": Case(spec={"hostPID": True, "runtimeClassName": "vm"}).made(),
}


class Client(contextlib.AbstractContextManager["Client"]):
    """Requests of one user on one connection."""

    def __init__(self, target: Attacked, user: str = TENANT) -> None:
        self._connection = http.client.HTTPSConnection(
            "127.0.0.1", target.port, timeout=120, context=target.context()
        )
        self._user = user
        self.sent = 0

    def __exit__(self, *_error: object) -> None:
        self._connection.close()

    def ask(self, method: str, path: str, body: object, kind: str = JSON, **headers: str) -> int:
        """The status code."""
        data = body if isinstance(body, bytes) else json.dumps(body).encode()
        named = {"Authorization": f"Bearer {harness.token(self._user)}", "Content-Type": kind}
        self._connection.request(method, path, data, named | headers)
        answer = self._connection.getresponse()
        answer.read()
        self.sent += 1
        return answer.status


@pytest.fixture(scope="module")
def target(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Attacked]:
    directory = tmp_path_factory.mktemp("attacked")
    with harness.attacked(directory, "--serve-upstream-aliases") as running:
        rules = [
            {
                "apiGroups": [""],
                "verbs": ["*"],
                "resources": [
                    f"pods/{part}" for part in ("binding", "ephemeralcontainers", "status")
                ],
            }
        ]
        role = {"metadata": {"name": "more"}, "rules": rules}
        running.make(f"{harness.RBAC}/clusterroles", role)
        harness.grant(running, TENANT, namespace=TENANT, role="more")
        assert enforce(running, LABELS) == 200
        yield running


@pytest.fixture
def client(target: Attacked) -> Iterator[Client]:
    with Client(target) as client:
        yield client


def enforce(target: Attacked, labels: dict[str, str | None]) -> int:
    body = {"metadata": {"labels": labels}}
    return target.ask(OPERATOR, "PATCH", NAMESPACE, body, Content_Type=MERGE).status


def named(name: str, document: dict[str, Any]) -> dict[str, Any]:
    document = copy.deepcopy(document)
    document["metadata"]["name"] = name
    return document


def stored(target: Attacked, path: str = PODS) -> list[Pod]:
    return [Pod.from_wire(item) for item in target.ask(OPERATOR, "GET", path).json()["items"]]


def dangers(pod: Pod) -> Iterator[str]:
    """What an agent would give the pod that `restricted` forbids, written without its checks."""
    spec, context = pod.spec, pod.spec.securityContext
    if spec.hostNetwork or spec.hostPID or spec.hostIPC or (spec.model_extra or {}).get("os"):
        yield "another system, or a namespace of the host"
    if any(volume.hostPath or volume.model_extra for volume in spec.volumes or ()):
        yield "a volume"
    if context is None or not context.runAsNonRoot or context.runAsUser == 0:
        yield "root"
    elif context.seccompProfile is None or context.sysctls or context.model_extra:
        yield "the context of the pod"
    for container in all_containers(pod):
        if not _is_harmless(container):
            yield container.name


def _is_harmless(container: Container) -> bool:
    own = container.securityContext
    if own is None or own.privileged or own.allowPrivilegeEscalation is not False:
        return False
    kept = own.capabilities
    return (
        kept is not None and "ALL" in (kept.drop or ()) and not kept.add
        and not (own.runAsUser == 0 or own.runAsNonRoot is False)
        and not (own.seccompProfile or own.model_extra)
        and not any(port.hostPort for port in container.ports or ())
    )  # fmt: skip


def got_through(target: Attacked, path: str = PODS) -> dict[str, list[str]]:
    """The pods an agent would run with more than `restricted` allows, and what that is."""
    return {pod.metadata.name: found for pod in stored(target, path) if (found := [*dangers(pod)])}


def test_no_bad_pod_can_be_created(target: Attacked, client: Client) -> None:
    taken = {}
    for name, document in BAD.items():
        generated = copy.deepcopy(document)
        generated["metadata"] = {**document["metadata"], "generateName": "bad-"}
        del generated["metadata"]["name"]
        as_account = {"Impersonate-User": f"system:serviceaccount:{TENANT}:default"}
        answers = (
            client.ask("POST", PODS, document),
            client.ask("POST", f"{PODS}?dryRun=All", document),
            client.ask("POST", f"{PODS}?fieldValidation=Ignore", generated),
            client.ask("POST", PODS, document, **as_account),
            client.ask("PUT", f"{PODS}/p", document),
        )
        if any(status < 400 for status in answers):
            taken[name] = answers
    assert (taken, got_through(target)) == ({}, {}), f"of {client.sent} attempts"
    assert len(BAD) > 60


def test_without_the_policy_many_would_get_through(target: Attacked) -> None:
    """These are attacks, and would be noticed: the neighbour's namespace has no policy.

    Volumes that no agent mounts are refused everywhere.
    """
    elsewhere = f"/api/v1/namespaces/{harness.NEIGHBOUR}/pods"
    with Client(target, harness.NEIGHBOUR) as free:
        for number, document in enumerate(BAD.values()):
            free.ask("POST", elsewhere, named(f"p{number}", document))
    assert len(got_through(target, elsewhere)) > 20


def _message(document: Any, message: Any) -> Any:
    """JSON data in the shape of `kinds.proto`, which wraps what JSON inlines."""
    if isinstance(document, list):
        return [_message(item, message) for item in document]
    if not isinstance(document, dict) or message.GetOptions().map_entry:
        return document
    fields = message.fields_by_name
    shaped: dict[str, Any] = {}
    for name, value in document.items():
        if name in fields:
            below = fields[name].message_type
            shaped[name] = _message(value, below) if below else value
        for wrapper in ("volumeSource", "ephemeralContainerCommon", "handler"):
            if name not in fields and wrapper in fields:
                inner = _message({name: value}, fields[wrapper].message_type)
                shaped[wrapper] = {**shaped.get(wrapper, {}), **inner}
    return shaped


def as_protobuf(document: dict[str, Any]) -> bytes:
    shaped = _message(document, kinds_pb2.Pod.DESCRIPTOR)
    message = json_format.ParseDict(shaped, kinds_pb2.Pod(), ignore_unknown_fields=True)
    return envelope("v1", "Pod", message.SerializeToString())


def test_no_bad_pod_comes_in_protobuf(target: Attacked, client: Client) -> None:
    good = as_protobuf(named("in-protobuf", Case().made()))
    assert client.ask("POST", PODS, good, PROTOBUF) == 201
    for number, document in enumerate(BAD.values()):
        try:
            body = as_protobuf(named(f"proto-{number}", document))
        except json_format.ParseError:
            continue  # of a type that protobuf has no way to write
        client.ask("POST", PODS, body, PROTOBUF)
    assert got_through(target) == {}, f"of {client.sent} attempts"
    assert client.sent > 45


def changes(document: dict[str, Any]) -> Iterator[tuple[str, object]]:
    """Ways to turn a good pod into a bad one: patches of every type, without a body for PUT."""
    spec, annotations = document["spec"], document["metadata"].get("annotations") or {}
    yield MERGE, {"metadata": {"annotations": annotations}, "spec": spec}
    yield (
        STRATEGIC,
        {"metadata": {"annotations": annotations}, "spec": {"$patch": "replace", **spec}},
    )
    yield STRATEGIC, {"metadata": {"annotations": annotations}, "spec": spec}
    yield JSON_PATCH, [{"op": "replace", "path": "/spec", "value": spec}]
    yield (
        JSON_PATCH,
        [{"op": "add", "path": f"/spec/{name}", "value": value} for name, value in spec.items()],
    )


@pytest.mark.parametrize("part", ["", "/status", "/ephemeralcontainers"])
def test_no_good_pod_can_be_made_bad(target: Attacked, client: Client, part: str) -> None:
    name = f"good{part.replace('/', '-')}"
    client.ask("POST", PODS, named(name, Case().made()))
    at = f"{PODS}/{name}{part}"
    for document in BAD.values():
        bad = named(name, document)
        client.ask("PUT", at, bad)
        for kind, body in changes(bad):
            client.ask("PATCH", at, body, kind)
    assert got_through(target) == {}, f"of {client.sent} attempts"
    assert client.sent > 300


def test_no_bad_container_can_be_added(target: Attacked, client: Client) -> None:
    client.ask("POST", PODS, named("debugged", Case().made()))
    at = f"{PODS}/debugged/ephemeralcontainers"
    for number, document in enumerate(BAD.values()):
        bad = {**document["spec"]["containers"][0], "name": f"e{number}"}
        bad.pop("ports", None)
        if bad == {**Case().made()["spec"]["containers"][0], "name": f"e{number}"}:
            bad["securityContext"] = {"privileged": True}
        added = [bad]
        client.ask("PATCH", at, {"spec": {"ephemeralContainers": added}}, STRATEGIC)
        client.ask("PATCH", at, {"spec": {"ephemeralContainers": added}}, MERGE)
        patch = [{"op": "add", "path": "/spec/ephemeralContainers", "value": added}]
        client.ask("PATCH", at, patch, JSON_PATCH)
        whole = named("debugged", Case().made())
        whole["spec"]["ephemeralContainers"] = added
        client.ask("PUT", at, whole)
    assert got_through(target) == {}, f"of {client.sent} attempts"


def test_a_binding_brings_nothing_but_a_node(target: Attacked, client: Client) -> None:
    client.ask("POST", PODS, named("bound", Case().made()))
    for document in BAD.values():
        body = {**document, "kind": "Binding", "apiVersion": "v1", "target": {"name": harness.NODE}}
        body["metadata"] = {**document["metadata"], "name": "bound"}
        client.ask("POST", f"{PODS}/bound/binding", body)
    assert got_through(target) == {}, f"of {client.sent} attempts"


def test_the_policy_cannot_be_changed_or_evaded(target: Attacked, client: Client) -> None:
    """Neither by the namespace nor by rights, under the reference's names as well."""
    rbac = "rbac.authorization.k8s.io"
    own = {"apiGroup": rbac, "kind": "User", "name": TENANT}
    free = {"metadata": {"labels": dict.fromkeys(LABELS, "privileged")}}
    rules = [{"apiGroups": [""], "verbs": ["*"], "resources": ["namespaces"]}]
    at = f"/apis/{rbac}/v1/namespaces/{TENANT}"
    role = {"apiGroup": rbac, "kind": "ClusterRole", "name": "cluster-admin"}
    binding = {"metadata": {"name": "b"}, "roleRef": role, "subjects": [own]}
    answers = {
        "patched": client.ask("PATCH", NAMESPACE, free, MERGE),
        "patched status": client.ask("PATCH", f"{NAMESPACE}/status", free, MERGE),
        "finalized": client.ask("PUT", f"{NAMESPACE}/finalize", free),
        "replaced": client.ask("PUT", NAMESPACE, {"metadata": {"name": TENANT}}),
        "created": client.ask("POST", "/api/v1/namespaces", {"metadata": {"name": "mine"}}),
        "deleted": client.ask("DELETE", NAMESPACE, {}),
        "role": client.ask("POST", f"{at}/roles", {"metadata": {"name": "r"}, "rules": rules}),
        "binding": client.ask("POST", f"{at}/rolebindings", binding),
        "elsewhere": client.ask("POST", "/api/v1/namespaces/default/pods", BAD["privileged"]),
        "as an admin": client.ask(
            "POST", PODS, BAD["privileged"], **{"Impersonate-User": OPERATOR}
        ),
    }
    moved = copy.deepcopy(BAD["privileged"])
    moved["metadata"]["namespace"] = "default"
    answers["moved"] = client.ask("POST", PODS, moved)
    allowed = {what: status for what, status in answers.items() if status < 400}
    assert (allowed, got_through(target)) == ({}, {})


def test_what_json_says_twice_counts_as_it_is_stored(target: Attacked, client: Client) -> None:
    good = json.dumps(named("twice", Case().made()))
    for twice in (
        good.replace('"spec": {', '"spec": {"hostPID": true, "hostPID": false, ', 1),
        good.replace('"spec": {', '"spec": {"hostPID": false, "hostPID": true, ', 1),
        good.replace('"spec": {', '"spec": {"hostpid": true, "HostPID": true, ', 1),
        good.replace('"spec": {', '"spec": {"hostPID": true}, "spec": {', 1),
        good[:-1] + ', "spec": {"hostPID": true, "containers": [{"name": "c", "image": "a"}]}}',
    ):
        client.ask("POST", PODS, twice.encode())
        found = got_through(target)
        assert found == {}, twice
        client.ask("DELETE", f"{PODS}/twice?gracePeriodSeconds=0", {})


def test_no_pod_slips_through_while_the_policy_is_tightened(target: Attacked) -> None:
    """Once the operator's change is answered, every later pod is judged by it."""
    late: list[str] = []
    changes = [1]  # odd: the policy is enforced, and the change was answered
    stop = threading.Event()

    def post(worker: int) -> None:
        number = 0
        with Client(target) as client:
            while not stop.is_set():
                number += 1
                name, seen = f"race-{worker}-{number}", changes[0]
                status = client.ask("POST", PODS, named(name, BAD["privileged"]))
                if status == 201 and seen % 2 and changes[0] == seen:
                    late.append(name)

    workers = [threading.Thread(target=post, args=(worker,)) for worker in range(4)]
    for worker in workers:
        worker.start()
    try:
        for _ in range(3):
            changes[0] += 1
            assert enforce(target, dict.fromkeys(LABELS)) == 200
            time.sleep(0.1)
            assert enforce(target, LABELS) == 200
            changes[0] += 1
            time.sleep(0.1)
    finally:
        stop.set()
        for worker in workers:
            worker.join()
    made = [pod.metadata.name for pod in stored(target) if pod.metadata.name.startswith("race-")]
    for name in made:
        target.ask(OPERATOR, "DELETE", f"{PODS}/{name}?gracePeriodSeconds=0")
    assert late == [], f"{len(late)} of {len(made)} after the answer"
    assert made, "the policy was never relaxed"


def _wide(containers: int) -> bytes:
    document = named("wide", BAD["privileged"])
    one = document["spec"]["containers"][0]
    document["spec"]["containers"] = [{**one, "name": f"c{n}"} for n in range(containers)]
    return json.dumps(document).encode()


def cpu_s(target: Attacked, work: Callable[[], object]) -> float:
    process = psutil.Process(target.server.process.pid)
    before = sum(process.cpu_times()[:2])
    work()
    return sum(process.cpu_times()[:2]) - before


def test_a_huge_pod_costs_not_much_more_than_without_a_policy(
    target: Attacked, client: Client
) -> None:
    """Measured in processor time, beside the same pods in a namespace that judges nothing."""
    body = _wide(1000)
    elsewhere = f"/api/v1/namespaces/{harness.NEIGHBOUR}/pods?dryRun=All"
    with Client(target, harness.NEIGHBOUR) as free:

        def several(ask: Callable[[], int], wanted: int) -> float:
            return cpu_s(target, lambda: [ask() == wanted or pytest.fail() for _ in range(5)])

        judged_s = several(lambda: client.ask("POST", PODS, body), 403)
        free_s = several(lambda: free.ask("POST", elsewhere, body), 201)
    told = f"{judged_s:.2f} s for 5 judged pods of {len(body)} bytes, {free_s:.2f} s for free ones"
    assert judged_s < 3 * free_s + 0.2, told
