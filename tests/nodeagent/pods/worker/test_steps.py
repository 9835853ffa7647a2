"""The sandbox that is asked of the runtime, from the node's settings and files."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from nodeagent.pods.spec.dns import DnsSettings
from nodeagent.runtime.isolation import RuntimeFeatures
from orch.server.strategy import pod_defaults
from orch.wire.podrules import podspec
from orch.wire.records.pods import Pod
from tests.fakes.pods import container_data, pod
from tests.fakes.podworld import PodWorld

pytestmark = pytest.mark.looptime


def with_dns(world: PodWorld, **settings: Any) -> None:
    world.settings = replace(world.settings, dns=DnsSettings(**settings))
    world.use(world.source)


async def test_a_sandbox_resolves_names_as_pod_and_node_say(world: PodWorld) -> None:
    file = world.directory / "resolv.conf"
    file.write_text("nameserver 192.0.2.53\nsearch lab.example\n")
    with_dns(world, resolv_conf=str(file), domain="cluster.local")
    config = {"searches": ["own.example"], "options": [{"name": "edns0"}]}
    await world.start(pod(dnsPolicy="ClusterFirst", dnsConfig=config))
    await world.until(lambda: "app" in world.running())
    [made] = world.runtime.sandboxes.values()
    assert tuple(made.spec.dns_servers) == ("192.0.2.53",)
    assert tuple(made.spec.dns_searches) == ("lab.example", "own.example")
    assert tuple(made.spec.dns_options) == ("edns0",)
    assert world.reasons().count("MissingClusterDNS") == 1


async def test_a_pod_that_asks_for_nothing_leaves_the_file_to_the_runtime(world: PodWorld) -> None:
    await world.start(pod())
    await world.until(lambda: "app" in world.running())
    [made] = world.runtime.sandboxes.values()
    assert not (made.spec.dns_servers or made.spec.dns_searches or made.spec.dns_options)
    assert not {"MissingClusterDNS", "DNSConfigForming"} & set(world.reasons())


async def test_fields_that_do_nothing_are_told_once_with_a_pod_of_the_api(world: PodWorld) -> None:
    world.source.name = podspec.API
    container = container_data("app", volumeDevices=[{"name": "v", "devicePath": "/v"}])
    wanted = pod(
        container, resourceClaims=[{"name": "c"}], os={"name": "linux"}, schedulerName="mine"
    )
    await world.start(wanted)
    await world.until(lambda: "app" in world.running())
    [(_, _, told)] = [event for event in world.events if event[1] == "FieldsIgnored"]
    assert told == (
        "this agent does not support these fields and ignores them: "
        "spec.resourceClaims, spec.containers[0].volumeDevices"
    )


async def test_a_pod_with_users_of_its_own_keeps_their_range_in_every_sandbox(
    world: PodWorld,
) -> None:
    world.runtime.runtime_features = RuntimeFeatures(
        frozenset({""}), user_namespaces=frozenset({""})
    )
    await world.start(pod(hostUsers=False))
    await world.until(lambda: "app" in world.running())
    [made] = world.runtime.sandboxes.values()
    given = made.spec.user_namespace
    assert given and given.length == 65_536 and given.first_id >= 65_536
    await world.runtime.stop_sandbox(made.row.id)
    await world.until(lambda: len(world.runtime.sandboxes) == 2 and "app" in world.running())
    assert {each.spec.user_namespace for each in world.runtime.sandboxes.values()} == {given}


async def test_a_runtime_without_user_namespaces_makes_no_sandbox_for_such_a_pod(
    world: PodWorld,
) -> None:
    await world.start(pod(hostUsers=False))
    await world.until(lambda: "FailedCreatePodSandBox" in world.reasons())
    text = "can't set `spec.hostUsers: false`, runtime does not support user namespaces"
    text = f"Failed to create pod sandbox: {text}"
    assert ("web", "FailedCreatePodSandBox", text) in world.events
    assert not world.runtime.sandboxes


async def test_a_stop_signal_that_the_runtime_ignores_is_told(world: PodWorld) -> None:
    container = container_data("app", lifecycle={"stopSignal": "SIGUSR1"})
    await world.start(pod(container, os={"name": "linux"}))
    await world.until(lambda: "app" in world.running())
    [made] = world.runtime.containers.values()
    assert made.spec.stop_signal == "SIGUSR1"
    [(_, _, told)] = [event for event in world.events if event[1] == "FieldsIgnored"]
    assert told == (
        "the container runtime ignores spec.containers[0].lifecycle.stopSignal: "
        "the container is stopped with the signal of its image, or SIGTERM"
    )


async def test_a_pod_as_the_server_completes_it_has_no_such_field(world: PodWorld) -> None:
    world.source.name = podspec.API
    data = pod(container_data("app", ports=[{"containerPort": 80}])).to_wire()
    pod_defaults.fill(data["spec"])
    await world.start(Pod.from_wire(data))
    await world.until(lambda: "app" in world.running())
    assert "FieldsIgnored" not in world.reasons()


@pytest.mark.parametrize(
    ("fields", "settings", "said"),
    [
        ({}, {"resolv_conf": "/nowhere/resolv.conf"}, "'/nowhere/resolv.conf'"),
        (
            {"subdomain": "s" * 50, "setHostnameAsFQDN": True},
            {"domain": "cluster.local"},
            "is too long (64 characters is the max",
        ),
    ],
)
async def test_a_pod_that_cannot_have_its_names_is_not_run_under_others(
    world: PodWorld, fields: dict[str, Any], settings: dict[str, Any], said: str
) -> None:
    with_dns(world, **settings)
    await world.start(pod(**fields))
    await world.until(lambda: "FailedCreatePodSandBox" in world.reasons())
    assert any(said in message for _, _, message in world.events)
    assert not world.runtime.sandboxes
