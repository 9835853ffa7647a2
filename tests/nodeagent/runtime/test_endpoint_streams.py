"""Which of a runtime's addresses for streams are believed."""

from __future__ import annotations

from typing import Any

import pytest

from nodeagent.runtime import base
from nodeagent.runtime.cri import CriRuntime
from nodeagent.runtime.endpoint import StreamAddress, StreamOptions, stream_address
from tests.fakes.cri_server import CriServer

AT = "http://127.0.0.1:41237"


@pytest.mark.parametrize(
    ("url", "address"),
    [
        (f"{AT}/exec/abc-DEF_1", StreamAddress("127.0.0.1", 41237, "/exec/abc-DEF_1")),
        (f"{AT}/exec/a?b=c", StreamAddress("127.0.0.1", 41237, "/exec/a?b=c")),
        ("http://localhost:1/x", StreamAddress("127.0.0.1", 1, "/x")),
        ("http://[::1]:65535/x", StreamAddress("::1", 65535, "/x")),
        ("http://127.9.9.9:80/x", StreamAddress("127.9.9.9", 80, "/x")),
    ],
)
def test_the_loopback_is_believed(url: str, address: StreamAddress) -> None:
    assert stream_address(url) == address


@pytest.mark.parametrize(
    ("url", "why"),
    [
        ("", "is not http://address:port/path"),
        ("/exec/token", "is not http://address:port/path"),
        ("https://127.0.0.1:1/x", "is not http://address:port/path"),
        ("http://127.0.0.1/x", "is not http://address:port/path"),
        ("http://user@127.0.0.1:1/x", "is not http://address:port/path"),
        ("http://127.0.0.1:0/x", "is not http://address:port/path"),
        ("http://127.0.0.1:99999/x", "is not a URL"),
        ("http://[::1/x", "is not a URL"),
        ("http://169.254.169.254:80/latest", "is not on this machine's loopback"),
        ("http://0.0.0.0:80/x", "is not on this machine's loopback"),
        ("http://runtime.example:80/x", "is not on this machine's loopback"),
        ("http://127.0.0.1.example:80/x", "is not on this machine's loopback"),
        (AT, "cannot be asked for"),
        (f"{AT}/x y", "cannot be asked for"),
        (f"{AT}/x\r\nHost: elsewhere\r\n\r\n", "cannot be asked for"),
        (f"{AT}/\u00e9", "cannot be asked for"),
        (f"{AT}/" + "x" * 3000, "cannot be asked for"),
    ],
)
def test_no_other_place_is(url: str, why: str) -> None:
    with pytest.raises(ValueError, match=why):
        stream_address(url)


@pytest.mark.parametrize(
    "ask",
    [
        lambda r: r.open_exec("c", ("true",), StreamOptions(stdout=True)),
        lambda r: r.open_attach("c", StreamOptions(stdout=True)),
        lambda r: r.open_port_forward("s", (80,)),
    ],
)
async def test_an_address_elsewhere_is_an_error_of_the_call(
    server: CriServer, runtime: CriRuntime, ask: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def elsewhere(*_: object) -> StreamAddress:
        return StreamAddress("192.0.2.1", 80, "/x")

    for name in ("open_exec", "open_attach", "open_port_forward"):
        monkeypatch.setattr(server.runtime, name, elsewhere)
    with pytest.raises(
        base.RuntimeCallError, match=r"address for streams is not used: 'http://192"
    ):
        await ask(runtime)


async def test_what_is_asked_for_arrives(server: CriServer, runtime: CriRuntime) -> None:
    spec = base.SandboxSpec(name="web", namespace="shop", uid="u1")
    sandbox_id = await runtime.run_sandbox(spec)
    made = base.ContainerSpec("app", 0, "localhost/busybox:1")
    container_id = await runtime.create_container(sandbox_id, made, spec)
    await runtime.start_container(container_id)
    wanted = StreamOptions(stdin=True, stdout=True, tty=True)
    await runtime.open_exec(container_id, ("sh", "-c", "true"), wanted)
    await runtime.open_attach(container_id, StreamOptions(stderr=True))
    await runtime.open_port_forward(sandbox_id, (80, 443))
    assert server.runtime.streams == [
        ("exec", container_id, ("sh", "-c", "true"), wanted),
        ("attach", container_id, (), StreamOptions(stderr=True)),
        ("portforward", sandbox_id, (80, 443), StreamOptions()),
    ]
