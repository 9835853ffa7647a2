"""Requests to the runtime, field by field; defaults that a client owes are the CRI's."""

from collections.abc import Awaitable, Callable
from dataclasses import replace
from typing import Any

import pytest

from nodeagent.runtime import base, cri_requests, isolation
from nodeagent.runtime import cri_pb2 as pb
from nodeagent.runtime.cri import CriRuntime
from orch.component.secret import Secret
from tests.fakes.cri_server import CriServer

SANDBOX = base.SandboxSpec(
    name="web",
    namespace="shop",
    uid="u1",
    attempt=2,
    hostname="web-0",
    log_directory="/logs/u1",
    cgroup_parent="/orchpods/podu1",
    labels={"a": "b"},
    annotations={"c": "d"},
    port_mappings=(base.PortMapping(80, host_port=8080, protocol="UDP", host_ip="10.0.0.1"),),
    sysctls={"net.ipv4.ip_local_port_range": "1024 65535"},
    run_as_user=0,
    run_as_group=5,
    supplemental_groups=(7, 8),
)


def container(**changes: Any) -> Any:
    spec = base.ContainerSpec(name="app", attempt=1, image="img:1", **changes)
    return cri_requests.container_config(spec, SANDBOX)


def security(**changes: Any) -> Any:
    return container(**changes).linux.security_context


def test_a_sandbox_is_sent_with_all_its_fields() -> None:
    config = cri_requests.sandbox_config(SANDBOX)

    assert config.metadata == pb.PodSandboxMetadata(
        name="web", uid="u1", namespace="shop", attempt=2
    )
    assert (config.hostname, config.log_directory) == ("web-0", "/logs/u1")
    assert (dict(config.labels), dict(config.annotations)) == ({"a": "b"}, {"c": "d"})
    assert list(config.port_mappings) == [
        pb.PortMapping(protocol=pb.UDP, container_port=80, host_port=8080, host_ip="10.0.0.1")
    ]
    assert config.linux.cgroup_parent == "/orchpods/podu1"
    assert dict(config.linux.sysctls) == {"net.ipv4.ip_local_port_range": "1024 65535"}
    context = config.linux.security_context
    assert context.HasField("run_as_user") and context.run_as_user.value == 0
    assert context.run_as_group.value == 5
    assert list(context.supplemental_groups) == [7, 8]
    assert context.privileged is False


def test_a_sandbox_runs_under_the_default_seccomp_profile() -> None:
    context = cri_requests.sandbox_config(SANDBOX).linux.security_context

    assert context.HasField("seccomp")
    assert context.seccomp.profile_type == pb.SecurityProfile.RuntimeDefault


def test_dns_settings_are_sent_only_when_there_are_any() -> None:
    plain = cri_requests.sandbox_config(SANDBOX)
    named = cri_requests.sandbox_config(
        base.SandboxSpec("web", "shop", "u1", dns_servers=("10.0.0.10",), dns_options=("ndots:5",))
    )

    assert not plain.HasField("dns_config")
    assert named.dns_config == pb.DNSConfig(servers=["10.0.0.10"], options=["ndots:5"])


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ({}, (pb.POD, pb.CONTAINER, pb.POD)),
        ({"host_network": True}, (pb.NODE, pb.CONTAINER, pb.POD)),
        ({"host_pid": True}, (pb.POD, pb.NODE, pb.POD)),
        ({"host_ipc": True}, (pb.POD, pb.CONTAINER, pb.NODE)),
    ],
)
def test_a_container_shares_network_and_ipc_of_its_pod_but_not_its_processes(
    changes: dict[str, bool], expected: tuple[int, int, int]
) -> None:
    sandbox = base.SandboxSpec("web", "shop", "u1", **changes)  # type: ignore[arg-type]
    spec = base.ContainerSpec(name="app", attempt=0, image="localhost/busybox:1")

    of_sandbox = cri_requests.sandbox_config(sandbox).linux.security_context.namespace_options
    of_container = cri_requests.container_config(
        spec, sandbox
    ).linux.security_context.namespace_options

    assert (of_sandbox.network, of_sandbox.pid, of_sandbox.ipc) == expected
    assert of_container == of_sandbox


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ({}, (pb.TARGET, "c1")),
        ({"host_pid": True}, (pb.NODE, "")),
        ({"shared_pid": True}, (pb.POD, "")),
    ],
)
def test_a_container_sees_the_processes_of_the_one_it_is_to_debug(
    changes: dict[str, bool], expected: tuple[int, str]
) -> None:
    sandbox = base.SandboxSpec("web", "shop", "u1", **changes)  # type: ignore[arg-type]
    spec = base.ContainerSpec(name="debug", attempt=0, image="img:1", pid_of="c1")
    config = cri_requests.container_config(spec, sandbox)
    options = config.linux.security_context.namespace_options
    assert (options.pid, options.target_id) == expected


def test_a_container_is_sent_with_all_its_fields() -> None:
    config = container(
        command=("sh",),
        args=("-c", "true"),
        working_dir="/work",
        env=(("KEY", "välue"),),
        mounts=(
            base.Mount("/host", "/inside", readonly=True, propagation="host_to_container"),
            base.Mount("/both", "/both", propagation="bidirectional", recursive_readonly=True),
            base.Mount("", "/files", readonly=True, image="files:1"),
        ),
        labels={"a": "b"},
        annotations={"c": "d"},
        log_path="app/0.log",
        stdin=True,
        tty=True,
    )

    assert config.metadata == pb.ContainerMetadata(name="app", attempt=1)
    assert config.image.image == "img:1"
    assert (list(config.command), list(config.args)) == (["sh"], ["-c", "true"])
    assert config.working_dir == "/work"
    assert list(config.envs) == [pb.KeyValue(key="KEY", value="välue".encode())]
    assert list(config.mounts) == [
        pb.Mount(
            container_path="/inside",
            host_path="/host",
            readonly=True,
            propagation=pb.PROPAGATION_HOST_TO_CONTAINER,
        ),
        pb.Mount(
            container_path="/both",
            host_path="/both",
            propagation=pb.PROPAGATION_BIDIRECTIONAL,
            recursive_read_only=True,
        ),
        pb.Mount(container_path="/files", readonly=True, image=pb.ImageSpec(image="files:1")),
    ]
    assert (dict(config.labels), dict(config.annotations)) == ({"a": "b"}, {"c": "d"})
    assert (config.log_path, config.stdin, config.tty) == ("app/0.log", True, True)


def test_resources_keep_their_units_and_none_is_not_set() -> None:
    sent = cri_requests.resources(
        base.LinuxResources(
            cpu_shares=512,
            cpu_quota_usec=50_000,
            cpu_period_usec=100_000,
            memory_limit_bytes=2**30,
            oom_score_adj=-997,
            unified={"memory.high": "1000"},
            hugepage_bytes={"2MB": 2**22},
        )
    )

    assert sent == pb.LinuxContainerResources(
        cpu_shares=512,
        cpu_quota=50_000,
        cpu_period=100_000,
        memory_limit_in_bytes=2**30,
        oom_score_adj=-997,
        unified={"memory.high": "1000"},
        hugepage_limits=[pb.HugepageLimit(page_size="2MB", limit=2**22)],
    )
    assert cri_requests.resources(base.LinuxResources()) == pb.LinuxContainerResources()


def test_users_groups_capabilities_and_switches_are_sent() -> None:
    context = security(
        run_as_user=0,
        run_as_group=3,
        supplemental_groups=(4,),
        readonly_rootfs=True,
        no_new_privileges=True,
        add_capabilities=("NET_ADMIN",),
        drop_capabilities=("ALL",),
    )

    assert context.HasField("run_as_user") and context.run_as_user.value == 0
    assert context.run_as_group.value == 3
    assert list(context.supplemental_groups) == [4]
    assert (context.readonly_rootfs, context.no_new_privs) == (True, True)
    assert context.capabilities == pb.Capability(
        add_capabilities=["NET_ADMIN"], drop_capabilities=["ALL"]
    )
    assert not security().HasField("run_as_user")


@pytest.mark.parametrize(
    ("setting", "expected"),
    [
        (
            isolation.SeccompSetting(isolation.SeccompKind.RUNTIME_DEFAULT),
            pb.SecurityProfile(profile_type=pb.SecurityProfile.RuntimeDefault),
        ),
        (
            isolation.SeccompSetting(isolation.SeccompKind.UNCONFINED),
            pb.SecurityProfile(profile_type=pb.SecurityProfile.Unconfined),
        ),
        (
            isolation.SeccompSetting(
                isolation.SeccompKind.LOCALHOST, "/var/lib/nodeagent/seccomp/a.json"
            ),
            pb.SecurityProfile(
                profile_type=pb.SecurityProfile.Localhost,
                localhost_ref="/var/lib/nodeagent/seccomp/a.json",
            ),
        ),
    ],
)
def test_the_seccomp_setting_is_always_sent(
    setting: isolation.SeccompSetting, expected: Any
) -> None:
    context = security(seccomp=setting)

    assert context.HasField("seccomp")
    assert context.seccomp == expected


def test_a_label_for_selinux_is_sent_with_sandbox_and_container() -> None:
    label = isolation.SELinuxLabel(type="t", level="s0:c1")
    sandbox = cri_requests.sandbox_config(replace(SANDBOX, selinux=label))

    expected = pb.SELinuxOption(type="t", level="s0:c1")
    assert sandbox.linux.security_context.selinux_options == expected
    assert security(selinux=label).selinux_options == expected
    assert not security().HasField("selinux_options")


def test_the_users_of_a_pod_are_mapped_in_its_sandbox_its_containers_and_their_mounts() -> None:
    sandbox = replace(SANDBOX, user_namespace=isolation.UserNamespace(131_072, 65_536))
    spec = base.ContainerSpec("app", 0, "img:1", mounts=(base.Mount("/a", "/b"),))
    made = cri_requests.container_config(spec, sandbox)

    [mapping] = [pb.IDMapping(host_id=131_072, container_id=0, length=65_536)]
    wanted = pb.UserNamespace(mode=pb.POD, uids=[mapping], gids=[mapping])
    of_sandbox = cri_requests.sandbox_config(sandbox).linux.security_context
    assert of_sandbox.namespace_options.userns_options == wanted
    assert made.linux.security_context.namespace_options.userns_options == wanted
    assert list(made.mounts[0].uidMappings) == list(made.mounts[0].gidMappings) == [mapping]
    plain = cri_requests.container_config(spec, SANDBOX)
    assert plain.linux.security_context.namespace_options.userns_options.mode == pb.NODE
    assert not plain.mounts[0].uidMappings


@pytest.mark.parametrize(
    ("name", "signal"),
    [("", "RUNTIME_DEFAULT"), ("SIGUSR1", "SIGUSR1"), ("SIGRTMIN+3", "SIGRTMINPLUS3"),
     ("SIGRTMAX-14", "SIGRTMAXMINUS14")],
)  # fmt: skip
def test_a_stop_signal_is_sent_by_its_name_in_cri(name: str, signal: str) -> None:
    assert container(stop_signal=name).stop_signal == pb.Signal.Value(signal)


def test_input_and_labels_of_mounts_are_sent_as_they_are_asked_for() -> None:
    mounts = (base.Mount("/a", "/b", selinux_relabel=True), base.Mount("/c", "/d"))
    made = container(stdin=True, stdin_once=True, mounts=mounts)
    assert (made.stdin, made.stdin_once) == (True, True)
    assert [mount.selinux_relabel for mount in made.mounts] == [True, False]
    assert not container(stdin=True).stdin_once


def test_a_container_with_an_unmasked_proc_sees_all_of_it() -> None:
    context = security(unmasked=True)
    assert not (context.masked_paths or context.readonly_paths)


def test_only_a_privileged_container_sees_all_of_the_kernels_files() -> None:
    plain, privileged = security(), security(privileged=True)

    assert "/proc/kcore" in plain.masked_paths
    assert "/proc/sys" in plain.readonly_paths
    assert privileged.privileged is True
    assert (list(privileged.masked_paths), list(privileged.readonly_paths)) == ([], [])


Refused = Callable[[CriRuntime], Awaitable[object]]
UNWRITABLE: list[tuple[str, Refused]] = [
    ("RunPodSandbox", lambda r: r.run_sandbox(replace(SANDBOX, hostname="\ud800"))),
    (
        "CreateContainer",
        lambda r: r.create_container(
            "x", base.ContainerSpec("app", 0, "img:1", env=[("A", "\ud800")]), SANDBOX
        ),
    ),
    (
        "UpdateContainerResources",
        lambda r: r.update_resources("x", base.LinuxResources(cpu_quota_usec=2**63)),
    ),
    ("PullImage", lambda r: r.pull_image("busybox:1", base.Login("\ud800", Secret("p")))),
]


@pytest.mark.parametrize(("operation", "call"), UNWRITABLE)
async def test_what_no_message_can_hold_is_a_refused_call(operation: str, call: Refused) -> None:
    with pytest.raises(base.RuntimeCallError, match="cannot be written") as refused:
        await call(CriRuntime("unix:///run/absent.sock"))
    assert refused.value.operation == operation


@pytest.mark.parametrize("timeout_s", [2**40, 2**63 - 1])
async def test_a_limit_beyond_all_times_is_not_over_at_once(
    server: CriServer, timeout_s: int
) -> None:
    runtime = CriRuntime(server.endpoint)
    try:
        sandbox_id = await runtime.run_sandbox(SANDBOX)
        spec = base.ContainerSpec(name="app", attempt=0, image="localhost/busybox:1")
        container_id = await runtime.create_container(sandbox_id, spec, SANDBOX)
        await runtime.start_container(container_id)
        await runtime.exec_sync(container_id, ["true"], timeout_s=timeout_s)
        await runtime.stop_container(container_id, timeout_s=timeout_s)
    finally:
        await runtime.close()
