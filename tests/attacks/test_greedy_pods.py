"""Small pods that make their agent do much: before they start, each minute, or by their number.

A whole cluster on a real containerd. Meanwhile a neighbour starts pods on the same node, which
takes seconds; without the bounds it took minutes, or for ever.
"""

from __future__ import annotations

import http.client
import json
import ssl
import time
from collections.abc import Callable, Iterator
from typing import Any

import psutil
import pytest

from tests.attacks.tenants import Tenant, pod
from tests.conftest_runtime import RealRuntime
from tests.e2e.harness import LocalCluster, eventually, local_cluster

pytestmark = [pytest.mark.real, pytest.mark.seconds(15)]

MIB = 1 << 20
CLASSES = "/apis/scheduling.orch.io/v1/priorityclasses"
PODS = "/api/v1/namespaces/default/pods"
JSON, MERGE = "application/json", "application/merge-patch+json"
STRATEGIC = "application/strategic-merge-patch+json"
GROWTH_MIB = 250  # of the agent; 178 was seen beside other tests
START_S = 45.0  # of a pod, on a busy machine; about 2 s on one at rest
REFUSED = 500
RESIZES = 300
UNITS_MIB = {"controller-manager": 1024, "nodeagent": 512}  # as `MemoryMax=` of their units


@pytest.fixture(scope="module")
def cluster(
    tmp_path_factory: pytest.TempPathFactory, real_runtime: RealRuntime
) -> Iterator[LocalCluster]:
    run_dir = tmp_path_factory.mktemp("greedy") / "run"
    (run_dir / "manifests").mkdir(parents=True)
    with local_cluster(run_dir, runtime=real_runtime.endpoint) as running:
        running.kubectl("create", "namespace", "neighbour")
        yield running


@pytest.fixture
def tenant(cluster: LocalCluster) -> Iterator[Tenant]:
    yield Tenant(cluster)
    cluster.kubectl("delete", "--raw", PODS)
    left = lambda: cluster.get(f"{PODS}?limit=1")["items"]  # noqa: E731
    eventually(lambda: not left(), within_s=120, what="the tenant's pods are gone")


Ask = Callable[..., dict[str, Any]]


@pytest.fixture
def ask(cluster: LocalCluster) -> Iterator[Ask]:
    """Requests on one connection; the answer must have one of the expected statuses."""
    known = cluster.info
    context = ssl.create_default_context(cafile=known["caFile"])
    context.load_cert_chain(known["clientCert"], known["clientKey"])
    host = known["apiserver"].removeprefix("https://")
    connection = http.client.HTTPSConnection(host, timeout=60, context=context)

    def send(
        method: str, path: str, body: object, *wanted: int, kind: str = JSON, user: str = ""
    ) -> dict[str, Any]:
        as_user = {"Impersonate-User": user} if user else {}
        connection.request(method, path, json.dumps(body), {"Content-Type": kind, **as_user})
        answer = connection.getresponse()
        text = answer.read()
        assert answer.status in wanted, f"{method} {path}: {answer.status} {text[:500]!r}"
        found: dict[str, Any] = json.loads(text)
        return found

    yield send
    connection.close()


def with_container(made: dict[str, Any], **fields: Any) -> dict[str, Any]:
    made["spec"]["containers"][0] |= fields
    return made


def showing(name: str, *sources: dict[str, Any], **metadata: Any) -> dict[str, Any]:
    volume = {"name": "v", "projected": {"sources": [*sources]}}
    return pod(name, metadata=metadata, volumes=[volume])


def greedy() -> Iterator[tuple[dict[str, Any], str]]:
    """Pods of up to 3 MiB, and what their agent says of them."""
    items = [{"key": "large", "path": f"{n}"} for n in range(2000)]
    yield showing("copies", {"configMap": {"name": "large", "items": items}}), "show more than"
    field = {"fieldRef": {"fieldPath": "metadata.annotations"}}
    facts = [{"path": f"{n}", **field} for n in range(3000)]
    annotated = {"annotations": {"a": "x" * 250_000}}
    yield showing("facts", {"downwardAPI": {"items": facts}}, **annotated), "show more than"
    deep = [{"key": "large", "path": "a/" * 1_000_000 + "b"}]
    yield showing("deep", {"configMap": {"name": "large", "items": deep}}), "more than 1024 bytes"
    prefixed = [{"prefix": "x" * MIB, "configMapRef": {"name": "keys"}}]
    named = "command, args and env take more than"
    yield with_container(pod("names"), envFrom=prefixed), named
    long = [{"name": "L", "value": "x" * MIB}]
    parts = [{"name": "e", "mountPath": f"/{n}", "subPathExpr": "$(L)$(L)x"} for n in range(200)]
    volume = [{"name": "e", "emptyDir": {}}]
    expanded = with_container(pod("parts", volumes=volume), env=long, volumeMounts=parts)
    yield expanded, "stands for more than 4096 bytes"


def referring(number: int) -> dict[str, Any]:
    """Thousands of objects that do not exist, and hundreds of tokens."""
    objects = [{"configMapRef": {"name": f"c{n}", "optional": True}} for n in range(2000)]
    tokens = [
        {"serviceAccountToken": {"path": f"{n}", "expirationSeconds": 600 + n}} for n in range(500)
    ]
    return with_container(showing(f"referring-{number}", *tokens), envFrom=objects)


def neighbours_pod_starts(
    cluster: LocalCluster, ask: Ask, name: str, *, within_s: float = START_S
) -> float:
    """After how many seconds."""
    began_s = time.monotonic()
    made = pod(name)
    made["spec"]["nodeName"] = cluster.node
    ask("POST", "/api/v1/namespaces/neighbour/pods", made, 201)
    eventually(
        lambda: cluster.pod(name, "neighbour")["status"]["phase"] == "Running",
        within_s=within_s,
        what=f"the neighbour's pod {name} runs",
    )
    return time.monotonic() - began_s


def told(cluster: LocalCluster, tenant: Tenant, name: str) -> str:
    """What is said of a pod, in its status and in events."""
    path = f"/api/v1/namespaces/default/events?fieldSelector=involvedObject.name={name}"
    return tenant.told(name) + "".join(e["message"] for e in cluster.get(path)["items"])


def test_a_pod_takes_no_more_of_its_agent_than_others_do(
    cluster: LocalCluster, tenant: Tenant, ask: Ask
) -> None:
    data = {"large": "x" * (MIB - 1024)}
    maps = {"large": data, "keys": {f"k{number}": "" for number in range(1000)}}
    for name, content in maps.items():
        made = {"metadata": {"name": name}, "data": content}
        ask("POST", "/api/v1/namespaces/default/configmaps", made, 201)
    agent = psutil.Process(cluster.pid("nodeagent"))
    neighbours_pod_starts(cluster, ask, "before")
    before = agent.memory_full_info().uss
    for body, text in greedy():
        name = body["metadata"]["name"]
        assert tenant.post(body) == "", name
        eventually(
            lambda name=name, text=text: text in told(cluster, tenant, name),
            within_s=60,
            what=f"the agent says of pod {name}: {text}",
        )
    for number in range(5):
        assert tenant.post(referring(number)) == ""
    neighbours_pod_starts(cluster, ask, "beside")
    grown = (agent.memory_full_info().uss - before) / MIB
    assert grown < GROWTH_MIB, f"the agent took {grown:.0f} MiB more"
    assert agent.is_running() and cluster.pid("nodeagent") == agent.pid
    assert cluster.ready_condition()["status"] == "True"


def test_pods_that_show_thousands_of_files_keep_none_from_starting(
    cluster: LocalCluster, tenant: Tenant, ask: Ask
) -> None:
    """Each is written anew for as long as another object is not there, and takes seconds."""
    keys = {f"k{number}": "x" for number in range(15_000)}
    made = {"metadata": {"name": "files"}, "data": keys}
    ask("POST", "/api/v1/namespaces/default/configmaps", made, 201)
    for number in range(20):
        names = {"a": "files", "b": "missing"}
        volumes = [{"name": v, "configMap": {"name": name}} for v, name in names.items()]
        assert tenant.post(pod(f"files-{number}", volumes=volumes)) == ""
    took_s = [neighbours_pod_starts(cluster, ask, f"few-{number}") for number in range(3)]
    assert max(took_s) < 15, took_s
    assert cluster.ready_condition()["status"] == "True"


def test_pods_that_the_node_refuses_keep_none_from_starting(
    cluster: LocalCluster, tenant: Tenant, ask: Ask
) -> None:
    alone_s = neighbours_pod_starts(cluster, ask, "alone")
    for number in range(REFUSED):
        greedy = {"requests": {"cpu": "1000"}}
        made = with_container(pod(f"refused-{number}"), resources=greedy)
        made["spec"]["nodeName"] = cluster.node
        ask("POST", PODS, made, 201)
    # Its report waits for theirs, which takes about 2 s on a machine at rest.
    neighbours_pod_starts(cluster, ask, "after", within_s=max(START_S, 10 * alone_s))

    def refused() -> bool:
        pods = cluster.get(f"{PODS}?fieldSelector=status.phase=Failed")["items"]
        return sum(one["status"]["reason"] == "OutOfcpu" for one in pods) == REFUSED

    eventually(refused, within_s=120, what="the node refuses all of them", poll_s=1)
    assert cluster.ready_condition()["status"] == "True"


def test_a_pod_keeps_its_priority_whatever_becomes_of_its_class(
    cluster: LocalCluster, tenant: Tenant, ask: Ask
) -> None:
    ask("POST", CLASSES, {"metadata": {"name": "high"}, "value": 1000}, 201)
    assert tenant.post(pod("kept", priorityClassName="high")) == ""
    changed = ask("PATCH", f"{CLASSES}/high", {"value": 2_000_000_000}, 422, kind=MERGE)
    assert "may not be changed in an update" in changed["message"]
    ask("DELETE", f"{CLASSES}/high", {}, 200)
    refused = tenant.post(pod("late", priorityClassName="high"))
    assert "no PriorityClass with name high was found" in refused
    ask("POST", CLASSES, {"metadata": {"name": "high"}, "value": 7}, 201)
    assert tenant.post(pod("again", priorityClassName="high")) == ""
    for wish in ({"priority": 2_000_000_000}, {"priorityClassName": "system-node-critical"}):
        answer = ask("PATCH", f"{PODS}/kept", {"spec": wish}, 422, kind=MERGE)
        assert "pod updates may not change fields" in answer["message"], wish
    found = {name: cluster.pod(name)["spec"]["priority"] for name in ("kept", "again")}
    assert found == {"kept": 1000, "again": 7}


def test_a_pod_that_is_resized_without_end_delays_no_other(
    cluster: LocalCluster, tenant: Tenant, ask: Ask
) -> None:
    def resize(limit: str, request: str = "10m", wanted: int = 200) -> None:
        sizes = {"requests": {"cpu": request}, "limits": {"cpu": limit}}
        patch = {"spec": {"containers": [{"name": "c", "resources": sizes}]}}
        ask("PATCH", f"{PODS}/elastic/resize", patch, wanted, kind=STRATEGIC)

    def has(limit: str) -> bool:
        statuses = cluster.pod("elastic")["status"].get("containerStatuses", [{}])
        resources = statuses[0].get("resources", {"limits": {}})
        return bool(resources["limits"].get("cpu") == limit)

    sizes = {"requests": {"cpu": "10m"}, "limits": {"cpu": "20m"}}
    assert tenant.post(with_container(pod("elastic"), resources=sizes)) == ""
    eventually(lambda: has("20m"), within_s=START_S, what="the pod runs")
    resize("-1", wanted=422)
    resize("5m", wanted=422)
    resize("1000000", "1000000", wanted=403)
    whole = cluster.get(f"/api/v1/nodes/{cluster.node}")["status"]["allocatable"]["cpu"]
    for number in range(RESIZES):
        most = whole if number % 3 == 0 else ""  # of a node that others use as well
        resize(most or f"{21 + number}m", most or "10m")
    neighbours_pod_starts(cluster, ask, "calm")
    resize("77m")
    eventually(lambda: has("77m"), within_s=START_S, what="the last size is in force")


Fill = Callable[[str, str], tuple[int, str]]


@pytest.fixture
def fill(cluster: LocalCluster, ask: Ask) -> Iterator[Fill]:
    """Bind pods of a namespace to a node while there is room: their number, and what is said then.

    Each toleration takes 16 bytes in the store, and 650 of the controller and of the agent.
    """
    tolerations = [{"key": f"k{number}"} for number in range(9900)]
    made = set[str]()

    def prepare(namespace: str) -> None:
        group = "rbac.authorization.orch.io"
        binding = {
            "metadata": {"name": "tenant"},
            "roleRef": {"apiGroup": group, "kind": "ClusterRole", "name": "edit"},
            "subjects": [{"apiGroup": group, "kind": "User", "name": "tenant"}],
        }
        ask("POST", "/api/v1/namespaces", {"metadata": {"name": namespace}}, 201)
        bindings = f"/apis/{group}/v1/namespaces/{namespace}/rolebindings"
        ask("POST", bindings, binding, 201)

    def bind(namespace: str, node: str) -> tuple[int, str]:
        if namespace not in made:
            prepare(namespace)
            made.add(namespace)
        path = f"/api/v1/namespaces/{namespace}/pods"
        for count in range(1000):
            name = f"{node}-{count}".lower()
            one = pod(name, tolerations=tolerations, nodeName=node)
            with_container(one, resources={"requests": {"cpu": "1000"}})
            answer = ask("POST", path, one, 201, 403, user="tenant")
            if answer["kind"] == "Status":
                return count, answer["message"]
        raise AssertionError(f"{namespace} has no bound")

    yield bind
    cluster.kubectl("delete", "namespace", *made)


@pytest.mark.soak
def test_namespaces_full_of_pods_fit_into_the_units_of_those_who_hold_them(
    cluster: LocalCluster, ask: Ask, fill: Fill
) -> None:
    node = cluster.node
    first, told = fill("first", node)
    assert "--max-node-mib of node" in told and "half of it for namespace first" in told
    second, told = fill("second", node)
    third, told = fill("third", node)
    assert f"--max-node-mib of node {node} for the memory" in told
    assert first + second + third > 20
    ask("POST", "/api/v1/nodes", {"metadata": {"name": "silent"}}, 201)
    more, told = fill("first", "silent")
    assert more > 5 and "for the memory that pods take of agents" in told

    failed = ["get", "pods", "-A", "--field-selector=status.phase=Failed", "-o=name"]
    eventually(
        lambda: len(cluster.kubectl(*failed).stdout.split()) == first + second + third,
        within_s=60, what="the agent has seen all of them", poll_s=1,
    )  # fmt: skip
    for name, most in UNITS_MIB.items():
        held = psutil.Process(cluster.pid(name)).memory_full_info().uss / MIB
        print(f"{name}: {held:.0f} MiB for {first}, {second}, {third} and {more} pods")
        assert held < 0.9 * most, f"{name} takes {held:.0f} MiB"
    vital = pod("vital", nodeName=node)
    ask("POST", "/api/v1/namespaces/orch-system/pods", vital, 201)
    cluster.kubectl("delete", "pod", "-n", "orch-system", "vital", "--now")
