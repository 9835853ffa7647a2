"""A cluster to join: the authority of `orch-apiserver init`, a real server, a real controller."""

from __future__ import annotations

import asyncio
import contextlib
import re
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass
from datetime import datetime, timedelta
from pathlib import Path

from orch.client.informer import Informer
from orch.client.kubeconfig import load_kubeconfig
from orch.client.resources import ApiClient
from orch.client.transport import Transport
from orch.component.pki import Authority, KeyPair, Subject
from orch.component.process import clock, loops
from orch.lifecycle.certificates.controller import CertificateController, SigningSettings
from orch.server import authority
from orch.wire.records.core import Node
from tests.orch.server.harness import USERS, Api, Pki

LIFETIME = timedelta(hours=10)


@dataclass
class World:
    """`token` and `pin` are those that `init` printed."""

    api: Api
    directory: Path
    server: str
    token: str
    pin: str

    def client(self, name: str) -> ApiClient:
        """By a kubeconfig of `init`."""
        return ApiClient(Transport(load_kubeconfig(str(self.directory / f"{name}.kubeconfig"))))


def make(directory: Path, port: int = 6443) -> tuple[Pki, str, str]:
    """The authority, with a certificate for every user; the token, and the hash of its key."""
    now = clock.utc_now()
    printed = authority.make(directory, ["127.0.0.1"], port, 3600.0, now)
    token, pin = re.findall(r"--token (\S+) --ca-hash (\S+)", printed)[0]
    ca = Authority(directory, now=now, keep=True)
    users = {user: ca.issue(Subject(user, name, groups)) for user, (name, groups) in USERS.items()}
    return Pki(ca.ca_file, KeyPair.at(directory, "tls"), users), token, pin


@contextlib.asynccontextmanager
async def cluster(
    directory: Path, *, signs: bool = True, now: Callable[[], datetime] = clock.utc_now
) -> AsyncIterator[World]:
    pki, token, pin = await asyncio.to_thread(make, directory / "pki")
    first = str(directory / "pki" / "bootstrap-token")
    api = await Api.start(pki, directory / "data", "--bootstrap-token-file", first)
    await asyncio.to_thread(authority.make, directory / "pki", [], api.port, 3600.0, now())
    world = World(api, directory / "pki", f"https://127.0.0.1:{api.port}", token, pin)
    client = world.client("controller-manager")
    nodes = Informer(client, Node)
    settings = SigningSettings(
        KeyPair.at(world.directory, "ca"), KeyPair.at(world.directory, "nodeagent-ca"), LIFETIME
    )
    controller = CertificateController(client, settings, nodes.objects, now=now)
    wanted = [nodes.run(), controller.run()] if signs else []
    running = [loops.spawn(one, name="controller") for one in wanted]
    try:
        yield world
    finally:
        await loops.cancel(*running)
        await client.transport.close()
        await api.stop()
