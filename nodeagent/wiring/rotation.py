"""Builds what renews the agent's certificates, where the configuration asks for it."""

from __future__ import annotations

import logging
from pathlib import Path
from typing import TYPE_CHECKING

from nodeagent.node.status_loop import OwnNode
from nodeagent.wiring.base import Base
from orch.client.renewal import renewal_of
from orch.component import tls
from orch.component.process import clock
from orch.component.process.loops import Periodic

if TYPE_CHECKING:
    from nodeagent.certificates.rotation import Rotation

log = logging.getLogger(__name__)


def build_rotation(base: Base) -> Rotation | None:
    """None where nothing is to be renewed."""
    config, options, clients = base.config, base.options, base.clients
    serving = config.serverTLSBootstrap and not config.tlsCertFile
    if clients is None or not (config.rotateCertificates or serving):
        return None
    from nodeagent.certificates.enrolment import hosts_for
    from nodeagent.certificates.rotation import ManagedCertificate, Rotation  # with cryptography

    def hosts() -> tuple[str, ...]:
        return hosts_for(base.node_name, _reported(base.own_node))

    managed = []
    used = clients.general.transport.config.cert_file
    if config.rotateCertificates and Path(used) == Path(options.client_file).absolute():
        path = Path(options.client_file)
        managed.append(ManagedCertificate("client", path, base.node_name))
    elif config.rotateCertificates:
        log.warning(
            "rotateCertificates does nothing: the kubeconfig has %s instead of %s; run 'nodeagent"
            " join' for one that is renewed", used or "no certificate", options.client_file,
        )  # fmt: skip
    if serving:
        path = Path(options.serving_file)
        managed.append(ManagedCertificate("serving", path, base.node_name, hosts=hosts))
    return Rotation(clients.general, managed, now=clock.utc_now)


def build_client_renewal(base: Base) -> Periodic | None:
    """What has the clients use a new certificate; None without one in a file."""
    renewal = renewal_of(base.transports)
    if renewal is None:
        return None
    return Periodic("client certificates", renewal.step, interval_s=tls.INTERVAL_S)


def _reported(own: OwnNode) -> list[str]:
    """The addresses that the cluster knows of this node; none before it is registered."""
    if own.seen is None:
        return []
    return [one.address for one in own.seen.status.addresses or () if one.address]
