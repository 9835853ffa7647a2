"""Environment of containers; tables are the reference's expand_test.go and helpers_test.go."""

from __future__ import annotations

import time

import pytest

from nodeagent.pods.spec import env
from nodeagent.pods.spec.env import SpecError
from nodeagent.pods.spec.references import ObjectData, Reference
from orch.wire.records.pods import Container
from orch.wire.records.variables import EnvVarSource, ResourceFieldRef
from tests.fakes.pods import UID, container_data, pod

VALUES = {"VAR_A": "A", "VAR_B": "B", "VAR_C": "C", "VAR_REF": "$(VAR_A)", "VAR_EMPTY": ""}

EXPANSIONS = [
    ("$(VAR_A)", "A"),
    ("___$(VAR_B)___", "___B___"),
    ("___$(VAR_C)", "___C"),
    ("$(VAR_A)-$(VAR_A)", "A-A"),
    ("$(VAR_REF)", "$(VAR_A)"),
    ("$$(VAR_REF)", "$(VAR_REF)"),
    ("$$$(VAR_REF)", "$$(VAR_A)"),
    ("$$$$(VAR_REF)", "$$(VAR_REF)"),
    ("foo$(VAR_EMPTY)bar", "foobar"),
    ("foo\\$(VAR_A)bar", "foo\\Abar"),
    ("foo$(DELIM_ERR", "foo$(DELIM_ERR"),
    ("$(NOT_THERE)", "$(NOT_THERE)"),
    ("$(", "$("),
    ("$", "$"),
    ("end$", "end$"),
    ("$VAR_A", "$VAR_A"),
    ("$?_boo_$!", "$?_boo_$!"),
    ("$()", "$()"),
    ("", ""),
    ("$(VAR_A", "$(VAR_A"),
    ("$$(VAR_A", "$(VAR_A"),
    ("\\\\$(VAR_A)\\\\", "\\\\A\\\\"),
]


@pytest.mark.parametrize(("text", "expected"), EXPANSIONS)
def test_references_are_expanded(text: str, expected: str) -> None:
    assert env.expand(text, VALUES) == expected


def test_a_text_full_of_open_references_takes_no_longer_than_one_of_closed_ones() -> None:
    text, closed = "$(" * 500_000, "$()" * 333_333
    spent_s = []
    for one in (closed, text):
        began_s = time.process_time()
        assert env.expand(one, VALUES) == one
        spent_s.append(time.process_time() - began_s)
    assert spent_s[1] <= 3 * spent_s[0] + 0.1, f"closed and open: {spent_s} s"


def test_references_to_references_are_bounded_before_they_are_made() -> None:
    doubling = [{"name": f"V{n}", "value": f"$(V{n - 1})" * 100} for n in range(1, 30)]
    wanted = container({"name": "V0", "value": "x" * 1000}, *doubling)
    with pytest.raises(SpecError, match=r"command, args and env take more than 2097152 bytes"):
        env.environment(wanted, literal)


def test_what_one_container_is_given_is_bounded_in_all() -> None:
    filling = [{"name": f"V{n}", "value": "x" * (2**19 - 20)} for n in range(4)]  # as execve counts
    room = env.Room()
    env.environment(container(*filling), literal, room=room)
    with pytest.raises(SpecError, match="pass large values as files"):
        room.take("x")
    large = {str(n): b"x" * 2**20 for n in range(3)}
    objects = {Reference("ConfigMap", "large"): ObjectData(large)}
    whole = container_data("app", envFrom=[{"configMapRef": {"name": "large"}}])
    with pytest.raises(SpecError, match="pass large values as files"):
        env.environment(Container.from_wire(whole), literal, objects)


def test_names_of_many_keys_with_a_long_prefix_count_too() -> None:
    """20,000 keys without values, of a prefix of 1 MiB, would take 20 GiB of the agent's memory."""
    objects = {Reference("ConfigMap", "many"): ObjectData({f"k{n}": b"" for n in range(100)})}
    source = {"prefix": "x" * 2**16, "configMapRef": {"name": "many"}}
    whole = Container.from_wire(container_data("app", envFrom=[source]))
    with pytest.raises(SpecError, match="take more than 2097152 bytes"):
        env.environment(whole, literal, objects)


@pytest.mark.slow
def test_keys_without_values_can_be_taken_only_so_often() -> None:
    objects = {Reference("ConfigMap", "c"): ObjectData({"a": b"", "b": b""})}
    sources = [{"configMapRef": {"name": "c"}}] * 100_000
    whole = Container.from_wire(container_data("app", envFrom=sources))
    with pytest.raises(SpecError, match="take more than 2097152 bytes"):
        env.environment(whole, literal, objects)


def test_variables_of_amounts_do_not_take_longer_in_a_pod_of_many_resources() -> None:
    many = {f"hugepages-{n}Ki": f"{n}Ki" for n in range(1, 3000)}
    asking = pod(container_data("app", resources={"limits": many}), resources={"limits": many})
    [app] = asking.spec.containers
    began_s = time.process_time()
    for _ in range(1500):
        for amount in ("limits.cpu", "requests.cpu"):
            reference = ResourceFieldRef(resource=amount)
            env.resource_field(asking, app, reference, {"cpu": "8"})
    assert time.process_time() - began_s < 1


def literal(source: EnvVarSource) -> str | None:
    return None


def container(*variables: dict[str, object]) -> Container:
    return Container.from_wire(container_data("app", env=list(variables)))


def test_variables_refer_to_earlier_ones_only() -> None:
    made = env.environment(
        container(
            {"name": "A", "value": "1"},
            {"name": "B", "value": "$(A)2 $(C)"},
            {"name": "C", "value": "3"},
            {"name": "EMPTY"},
        ),
        literal,
    )
    assert made == (("A", "1"), ("B", "12 $(C)"), ("C", "3"), ("EMPTY", ""))


def test_the_last_of_a_repeated_name_wins() -> None:
    made = env.environment(
        container({"name": "A", "value": "1"}, {"name": "A", "value": "$(A)2"}), literal
    )
    assert made == (("A", "12"),)


FIELDS = [
    ("metadata.name", "web"),
    ("metadata.namespace", "default"),
    ("metadata.uid", UID),
    ("metadata.labels['app']", "shop"),
    ("metadata.labels['none']", ""),
    ("metadata.annotations['x/y.z']", "note"),
    ("spec.nodeName", "node1"),
    ("status.podIP", "10.0.0.2"),
]


@pytest.mark.parametrize(("path", "expected"), FIELDS)
def test_fields_of_the_pod_can_be_referred_to(path: str, expected: str) -> None:
    meta = {"labels": {"app": "shop"}, "annotations": {"x/y.z": "note"}}
    of = pod(metadata=meta, nodeName="node1")
    assert env.pod_field(of, path, {"status.podIP": "10.0.0.2"}) == expected


def test_an_unknown_field_is_refused_by_name() -> None:
    with pytest.raises(SpecError, match=r"metadata\.finalizers"):
        env.pod_field(pod(), "metadata.finalizers", {})


def test_a_source_the_agent_does_not_know_is_named() -> None:
    wanted = container({"name": "A", "valueFrom": {"vaultKeyRef": {"path": "s", "key": "k"}}})
    with pytest.raises(SpecError, match="container app: env A: valueFrom vaultKeyRef"):
        env.environment(wanted, literal)


OBJECTS = {
    Reference("ConfigMap", "c"): ObjectData({"color": b"red", "bad=name": b""}),
    Reference("Secret", "s"): ObjectData({"key": b"s3cret"}),
    Reference("ConfigMap", "gone"): ObjectData(absent=True),
    Reference("ConfigMap", "far"): ObjectData(problem='configmap "far" cannot be read: refused'),
}


def from_key(kind: str, name: str, key: str, **more: object) -> dict[str, object]:
    return {"name": "A", "valueFrom": {f"{kind}KeyRef": {"name": name, "key": key, **more}}}


KEYS = [
    (from_key("configMap", "c", "color"), (("A", "red"),)),
    (from_key("secret", "s", "key"), (("A", "s3cret"),)),
    (from_key("configMap", "gone", "x", optional=True), ()),
    (from_key("configMap", "c", "x", optional=True), ()),
    (from_key("configMap", "gone", "x"), 'configmap "gone" not found'),
    (from_key("secret", "s", "x"), 'couldn\'t find key x in secret "s"'),
    (from_key("configMap", "far", "x", optional=True), "cannot be read: refused"),
]


@pytest.mark.parametrize(("variable", "expected"), KEYS)
def test_a_variable_can_be_a_key_of_an_object(
    variable: dict[str, object], expected: tuple[tuple[str, str], ...] | str
) -> None:
    if isinstance(expected, str):
        with pytest.raises(SpecError, match=expected):
            env.environment(container(variable), literal, OBJECTS)
    else:
        assert env.environment(container(variable), literal, OBJECTS) == expected


def test_whole_objects_become_variables_and_can_be_referred_to_and_overridden() -> None:
    wanted = Container.from_wire(
        {
            "name": "app",
            "envFrom": [
                {"prefix": "C_", "configMapRef": {"name": "c"}},
                {"secretRef": {"name": "s"}},
                {"configMapRef": {"name": "gone", "optional": True}},
            ],
            "env": [
                {"name": "BOTH", "value": "$(C_color) $(key)"},
                {"name": "key", "value": "own"},
            ],
        }
    )
    assert dict(env.environment(wanted, literal, OBJECTS)) == {
        "C_color": "red",
        "key": "own",
        "BOTH": "red s3cret",
    }
    gone = Container.from_wire({"name": "a", "envFrom": [{"configMapRef": {"name": "gone"}}]})
    with pytest.raises(SpecError, match='configmap "gone" not found'):
        env.environment(gone, literal, OBJECTS)


RESOURCES = {
    "limits": {"cpu": "250m", "memory": "64Mi"},
    "requests": {"cpu": "100m", "memory": "1000001"},
}
POD = pod(container_data("app", resources=RESOURCES))
[CONTAINER] = POD.spec.containers
ALLOCATABLE = {"cpu": "2", "memory": "1Gi", "ephemeral-storage": "10Gi"}

AMOUNTS = [
    ("limits.cpu", None, "1"),
    ("limits.cpu", "1m", "250"),
    ("requests.cpu", "1m", "100"),
    ("limits.memory", None, "67108864"),
    ("limits.memory", "1Mi", "64"),
    ("requests.memory", "1Mi", "1"),
    ("limits.ephemeral-storage", "1Gi", "10"),
    ("requests.ephemeral-storage", None, "0"),
    ("limits.cpu", "0", "1"),
]


@pytest.mark.parametrize(("resource", "divisor", "expected"), AMOUNTS)
def test_amounts_are_whole_divisors(resource: str, divisor: str | None, expected: str) -> None:
    reference = ResourceFieldRef(resource=resource, divisor=divisor)
    assert env.resource_field(POD, CONTAINER, reference, ALLOCATABLE) == expected


@pytest.mark.parametrize("resource", ["limits.gpu", "cpu", "used.cpu", ""])
def test_an_unknown_amount_is_refused(resource: str) -> None:
    with pytest.raises(SpecError, match="is not known"):
        env.resource_field(POD, CONTAINER, ResourceFieldRef(resource=resource), ALLOCATABLE)


@pytest.mark.parametrize(
    ("url", "host", "port", "address"),
    [
        ("https://api.example.com", "api.example.com", "443", "tcp://api.example.com:443"),
        ("https://192.0.2.7:6443/", "192.0.2.7", "6443", "tcp://192.0.2.7:6443"),
        ("https://[2001:db8::1]:6443", "2001:db8::1", "6443", "tcp://[2001:db8::1]:6443"),
    ],
)
def test_clients_in_pods_are_led_to_the_api_server(
    url: str, host: str, port: str, address: str
) -> None:
    """As K:pkg/kubelet/envvars has them for the Service `kubernetes`."""
    assert env.api_server_variables(url) == {
        "KUBERNETES_SERVICE_HOST": host,
        "KUBERNETES_SERVICE_PORT": port,
        "KUBERNETES_SERVICE_PORT_HTTPS": port,
        "KUBERNETES_PORT": address,
        f"KUBERNETES_PORT_{port}_TCP": address,
        f"KUBERNETES_PORT_{port}_TCP_PROTO": "tcp",
        f"KUBERNETES_PORT_{port}_TCP_PORT": port,
        f"KUBERNETES_PORT_{port}_TCP_ADDR": host,
    }


@pytest.mark.parametrize("url", ["", "http://127.0.0.1:8080", "https://host/below"])
def test_clients_are_led_to_no_server_that_they_cannot_use(url: str) -> None:
    assert env.api_server_variables(url) == {}


def test_what_is_given_can_be_referred_to_and_replaced() -> None:
    wanted = container({"name": "OWN", "value": "$(GIVEN)!"}, {"name": "OTHER", "value": "pod's"})
    given = {"GIVEN": "g", "OTHER": "node's"}
    found = env.environment(wanted, lambda _: None, given=given)
    assert dict(found) == {"GIVEN": "g", "OTHER": "pod's", "OWN": "g!"}


@pytest.mark.parametrize(
    ("whole", "expected"),
    [({}, "8"), ({"cpu": "2"}, "2"), ({"cpu": "9"}, "8"), ({"memory": "1Gi"}, "8")],
)
def test_without_a_limit_of_its_own_a_container_is_told_the_pods_if_that_is_less(
    whole: dict[str, str], expected: str
) -> None:
    """K:pkg/kubelet defaultPodLimitsForDownwardAPI."""
    wanted = pod(container_data("app"), resources={"limits": whole})
    reference = ResourceFieldRef(resource="limits.cpu")
    [app] = wanted.spec.containers
    assert env.resource_field(wanted, app, reference, {"cpu": "8"}) == expected
