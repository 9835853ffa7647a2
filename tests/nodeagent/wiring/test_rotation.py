"""Configuration and kubeconfig decide which certificates an agent renews."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from nodeagent.wiring import rotation
from nodeagent.wiring.base import Clients
from orch.client.kubeconfig import ClientConfig
from orch.client.resources import ApiClient
from orch.client.transport import Transport
from orch.wire.records.core import Node
from tests.nodeagent.wiring.conftest import BuildBase

pytestmark = pytest.mark.may_block  # the machine's facts are read before anything is served


def client_of(cert_file: str) -> Any:
    config = ClientConfig("https://a", cert_file=cert_file, key_file=cert_file)
    client = ApiClient(Transport(config))
    return Clients(client, client)


def test_nothing_is_renewed_unless_asked_for(base: BuildBase) -> None:
    assert rotation.build_rotation(base()) is None
    assert rotation.build_client_renewal(base()) is None
    standalone = base(rotateCertificates=True, serverTLSBootstrap=True)
    assert rotation.build_rotation(standalone) is None


def test_a_joined_agent_renews_both(base: BuildBase, tmp_path: Path) -> None:
    made = base(rotateCertificates=True, serverTLSBootstrap=True)
    own = f"{tmp_path}/pki/nodeagent-client-current.pem"
    object.__setattr__(made, "clients", client_of(own))
    built = rotation.build_rotation(made)
    assert built is not None
    assert [one.use for one in built.certificates] == ["client", "serving"]
    serving = built.certificates[1]
    assert serving.waits  # for the node to be registered
    addresses = [{"type": "InternalIP", "address": "10.0.0.1"}]
    made.own_node.seen = Node.from_wire(
        {"metadata": {"name": "n1"}, "status": {"addresses": addresses}}
    )
    assert not serving.waits
    assert rotation.build_client_renewal(made) is not None


def test_a_kubeconfig_that_cannot_be_renewed_is_named(
    base: BuildBase, caplog: pytest.LogCaptureFixture
) -> None:
    made = base(rotateCertificates=True)
    object.__setattr__(made, "clients", client_of("/elsewhere.crt"))
    built = rotation.build_rotation(made)
    assert built is not None
    assert built.certificates == ()
    assert "has /elsewhere.crt instead of" in caplog.text
