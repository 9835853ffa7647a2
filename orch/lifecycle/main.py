"""orch-controller-manager: builds the objects from the flags and supervises their tasks.

Serves its health from the start, decides only while it leads, and gives leadership up on an
orderly shutdown.
"""

from __future__ import annotations

import asyncio
import logging
import socket
import ssl
import sys
import uuid
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from orch.client.events import EventMetrics, EventRecorder
from orch.client.informer import Informer, InformerMetrics
from orch.client.kubeconfig import ClientConfig, load_kubeconfig
from orch.client.metrics import RestClientMetrics
from orch.client.renewal import renewal_of
from orch.client.resources import ApiClient
from orch.client.transport import Transport
from orch.component import tls as component_tls
from orch.component.diagnostics.framework_metrics import CertificateMetrics, FrameworkMetrics
from orch.component.diagnostics.health import CheckFailed, HealthChecks, SliMetrics
from orch.component.diagnostics.zpages import ZPages
from orch.component.http.httpd import HttpServer
from orch.component.process import clock, daemon, log_queue
from orch.component.process import files as process_files
from orch.component.process import log as logs
from orch.component.process.daemon import SetupError, Stop
from orch.component.process.loops import Periodic
from orch.component.process.notify import Notifier
from orch.component.tls import TlsFiles
from orch.lifecycle import options as flags
from orch.lifecycle import serving
from orch.lifecycle.apply import Applier
from orch.lifecycle.binding import placement
from orch.lifecycle.binding.binder import Binder
from orch.lifecycle.leader import Claim, Leader
from orch.lifecycle.metrics import LifecycleMetrics
from orch.lifecycle.monitor import INFORMED, Monitor
from orch.lifecycle.options import PROGRAM, Options
from orch.lifecycle.side_loop import SideLoop
from orch.wire import names
from orch.wire.names import VERSION
from orch.wire.records.core import Node

if TYPE_CHECKING:
    from orch.lifecycle.certificates.controller import SigningSettings

log = logging.getLogger(__name__)

_ABSENT = b"none"
_STUCK_PERIODS = 12  # /livez fails after this many periods without a decision


def main(argv: Sequence[str] | None = None) -> int:
    """Run the daemon; returns 0 after an orderly shutdown, 1 on an error, 2 on wrong usage."""
    try:
        options = flags.parse(sys.argv[1:] if argv is None else argv)
        logs.configure(level=options.log_level, format=options.logging_format)
        files = read_files(options)
    except SetupError as error:
        log_queue.print_final_line(f"{PROGRAM}: error: {error}")
        return 1
    return daemon.run_daemon(lambda stop: run(options, files, stop), name=PROGRAM)


@dataclass(frozen=True, slots=True)
class Files:
    """The contents of the files named by flags, read before anything runs."""

    api: ClientConfig
    tls_files: TlsFiles
    tls: ssl.SSLContext
    metrics: LifecycleMetrics  # its process metrics read /proc
    signing: SigningSettings | None  # None: no certificates are issued


def read_files(options: Options) -> Files:
    """SetupError names the file that cannot be used."""
    metrics = LifecycleMetrics(options.metric_policy)
    metrics.registry.register(FrameworkMetrics(options.features, emulated=options.emulated_version))
    api, tls_files = load_kubeconfig(options.kubeconfig), serving.files(options)
    signing = _signing(options, urlsplit(api.server).hostname or "")
    return Files(api, tls_files, serving.context(options), metrics, signing)


def _signing(options: Options, server: str) -> SigningSettings | None:
    if not options.cluster_signing_cert_file:
        return None
    if absent := [path for path in options.signing_files if _is_absent(path)]:
        log.warning(
            "issuing no certificates, for there is no %s: put it where the unit looks for it"
            " (/etc/orch-apiserver) and restart, or issue certificates yourself",
            " and no ".join(Path(path).name for path in absent),
        )
        return None
    from orch.component.pki import KeyPair  # with cryptography: 16 MiB
    from orch.lifecycle.certificates import controller

    ca = KeyPair(options.cluster_signing_cert_file, options.cluster_signing_key_file)
    own = KeyPair(
        options.cluster_signing_nodeagent_serving_cert_file,
        options.cluster_signing_nodeagent_serving_key_file,
    )
    return controller.settings_of(
        ca, own if own.cert_file else ca, options.cluster_signing_duration, (server,)
    )


def _is_absent(path: str) -> bool:
    """Whether the file says `none`, as the unit has it say where there is none; a file that cannot
    be read is named where it is used. Blocking I/O.
    """
    try:
        with Path(path).open("rb") as stream:
            return stream.read(len(_ABSENT) + 2).strip() == _ABSENT
    except OSError:
        return False


async def run(options: Options, files: Files, stop: Stop) -> None:
    """Decide until told to stop; SetupError when it cannot start as asked."""
    agent = f"{PROGRAM}/{VERSION}"
    client = ApiClient(Transport(files.api, user_agent=agent))
    claiming = ApiClient(Transport(files.api, user_agent=f"{agent} leader-election"))
    controller = Controller(options, client, claiming, files)
    http = HttpServer(
        serving.application(controller),
        host=options.bind_address,
        port=options.secure_port,
        ssl_context=files.tls,
        name=PROGRAM,
    )
    renewal = serving.renewal(http, options, files.tls_files)
    certificates = Periodic("certificates", renewal.step, interval_s=component_tls.INTERVAL_S)
    files.metrics.registry.register(RestClientMetrics([client.transport, claiming.transport]))
    files.metrics.registry.register(
        CertificateMetrics({"serving": renewal, "client": client.transport})
    )
    client_renewal = await asyncio.to_thread(renewal_of, (client.transport, claiming.transport))
    port = await http.start()
    notifier = Notifier.from_environment()
    try:
        await asyncio.to_thread(process_files.write_port, options.port_file, port)
        for warning in options.warnings:
            log.warning("%s", warning)
        log.info("%s %s serves on https://%s:%d", PROGRAM, VERSION, options.bind_address, port)
        daemon.freeze_gc()
        notifier.ready()
        loops = {
            "controller": controller.run(),
            "events": controller.events.run(),
            "events of bindings": controller.bindings.run(),
            "health checks": controller.checks.loop.run(),
            certificates.name: certificates.run(),
        }
        if client_renewal is not None:
            step, interval_s = client_renewal.step, component_tls.INTERVAL_S
            loops["client certificates"] = Periodic("clients", step, interval_s=interval_s).run()
        await daemon.supervise(stop, loops)
    finally:
        notifier.stopping()
        await http.stop()
        await client.transport.close()
        await claiming.transport.close()


class Controller:
    """This process's part in the election, the monitor of its current term, and its pages."""

    def __init__(
        self, options: Options, client: ApiClient, claiming: ApiClient, files: Files
    ) -> None:
        self.metrics = metrics = files.metrics
        self._signing = files.signing
        self.zpages = ZPages(PROGRAM, options.shown, emulated=options.emulated_version)
        self.features = options.features
        self.settings = options.settings
        self.events = EventRecorder(client, "node-controller")
        self.bindings = EventRecorder(client, placement.OWN_SCHEDULER)
        metrics.registry.register(EventMetrics(self.events, self.bindings))
        self._binds = options.bind_pods and options.features.enabled("PodBinding")
        self._binding = SideLoop("the binding of pods")
        self._issuing = SideLoop("the issuing of certificates")
        self.slis = SliMetrics()
        self.checks = HealthChecks(self.slis)
        self._options = options
        self._client = client
        self._identity = f"{socket.gethostname()}_{uuid.uuid4()}"
        claim = Claim(PROGRAM, names.SYSTEM_NAMESPACE, self._identity)
        self._leader = Leader(claiming, claim, now=clock.utc_now)
        self._monitor: Monitor | None = None
        self._show_leading(0)
        self.checks.add("ping", lambda: None)
        self.checks.add("node-monitor", self._check_monitor)
        if self._binds:
            self.checks.add("pod-binding", self._binding.check, endpoints=("readyz",))
        if self._signing is not None:
            self.checks.add("certificate-issuing", self._issuing.check, endpoints=("readyz",))
        for resource in INFORMED:
            check = partial(self._check_informer, resource)
            self.checks.add(f"informer-{resource}", check, endpoints=("readyz",))
        metrics.registry.register(InformerMetrics(self._informers))

    async def run(self) -> None:
        """Lead whenever elected, or always without an election."""
        if self._options.leader_elect:
            await self._leader.run(self._lead)
        else:
            await self._lead()

    async def _lead(self) -> None:
        """One term: a monitor with an empty memory, which no defect beside it ends."""
        changed = asyncio.Event()
        self._monitor = monitor = Monitor(
            self._client,
            self._options.settings,
            self.events,
            self.metrics,
            identity=self._identity,
            changed=changed.set,
        )
        self._show_leading(1)
        try:
            async with asyncio.TaskGroup() as tasks:
                tasks.create_task(monitor.run())
                if self._signing is not None:
                    work = partial(self._issue, monitor, self._signing)
                    tasks.create_task(self._issuing.run(work))
                if self._binds:
                    await monitor.wait_synced()
                    await self._binding.run(self._binder(monitor, changed).run)
        finally:
            self._monitor = None
            self._show_leading(0)

    async def _issue(self, monitor: Monitor, settings: SigningSettings) -> None:
        from orch.lifecycle.certificates.controller import CertificateController

        def nodes() -> Mapping[str, Node]:
            return monitor.cluster().nodes

        await monitor.wait_synced()
        await CertificateController(self._client, settings, nodes, now=clock.utc_now).run()

    def _binder(self, monitor: Monitor, changed: asyncio.Event) -> Binder:
        applier = Applier(self._client, self.bindings, self.metrics, now=clock.utc_now)
        binding = self.metrics.binding
        return Binder(self._client, applier, binding, monitor.cluster, changed=changed)

    def _show_leading(self, leading: int) -> None:
        self.metrics.leader.set(leading)
        if self._options.leader_elect:
            self.metrics.master.labels(PROGRAM).set(leading)

    def _informers(self) -> Sequence[Informer[Any]]:
        """Those of this term; standing by, none."""
        return self._monitor.informers if self._monitor else ()

    def _check_informer(self, resource: str) -> None:
        for informer in self._informers():
            if informer.plural == resource:
                informer.require_contact()

    def _check_monitor(self) -> None:
        """A leader must keep deciding once it began; standing by is healthy."""
        age_s = self._monitor.decision_age_s() if self._monitor else None
        if age_s is not None and age_s > _STUCK_PERIODS * self._options.settings.period_s:
            raise CheckFailed(f"no decision on nodes for {age_s:.0f} s")


if __name__ == "__main__":
    sys.exit(main())
