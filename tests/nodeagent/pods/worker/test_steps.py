"""What the runtime is told about a sandbox, from the node's settings and files."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from nodeagent.pods.spec.dns import DnsSettings
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
    container = container_data("app", lifecycle={"stopSignal": "SIGUSR1"})
    wanted = pod(container, overhead={"cpu": "1"}, os={"name": "linux"}, schedulerName="mine")
    await world.start(wanted)
    await world.until(lambda: "app" in world.running())
    [(_, _, told)] = [event for event in world.events if event[1] == "FieldsIgnored"]
    assert told == (
        "this agent does not support these fields and ignores them: "
        "spec.overhead, spec.containers[0].lifecycle.stopSignal"
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
