"""The server as one object: its parts built, connected, opened and closed in order.

Knows flags but neither sockets nor signals, so that tests run the same server behind a listener of
their own.
"""

from __future__ import annotations

import asyncio
from dataclasses import replace
from functools import partial
from typing import Any

from aiohttp import web

from orch.component import tls as component_tls
from orch.component.diagnostics.framework_metrics import CertificateMetrics, FrameworkMetrics
from orch.component.diagnostics.health import CheckFailed, HealthChecks, SliMetrics, check_log
from orch.component.diagnostics.zpages import ZPages, configz
from orch.component.http.fair_queue import Deadlines
from orch.component.http.slow_clients import SlowClients
from orch.component.process.daemon import SetupError, return_freed_memory
from orch.component.process.loops import Loop, Periodic
from orch.component.process.memory import ProcessMemory
from orch.component.tls import TlsRenewal
from orch.server import admission_steps, application
from orch.server.admission.pod_security.guard import PodSecurity
from orch.server.admission_configuration import read_settings
from orch.server.audit.trail import auditor_of
from orch.server.authn.credentials import Credentials
from orch.server.authz.authorizer import NodeAuthorizer
from orch.server.authz.index import RbacIndex
from orch.server.authz.node_graph import NodeGraph
from orch.server.controllers import bootstrap_tokens, event_ttl, namespaces
from orch.server.controllers.garbage_collector import GarbageCollector
from orch.server.controllers.namespace_defaults import NamespaceDefaults
from orch.server.controllers.quota_usage import QuotaUsage
from orch.server.controllers.roles import Roles
from orch.server.customresources import scaling
from orch.server.customresources.serving import CustomKinds
from orch.server.discovery import nonresource
from orch.server.discovery.published import Published
from orch.server.flags import Flags
from orch.server.flow.control import FlowControl
from orch.server.flow.levels import Limits
from orch.server.flow.metrics import FlowMetrics
from orch.server.handlers.resources import ResourceHandlers
from orch.server.handlers.reviews import Reviews
from orch.server.handlers.token_requests import TokenRequests
from orch.server.metrics import PodSecurityMetrics, ServerMetrics
from orch.server.nodes import usage_pages
from orch.server.nodes.agent_streams import AgentStreams
from orch.server.nodes.pod_logs import PodLogs
from orch.server.nodes.pod_streams import PodStreams
from orch.server.nodes.proxy import NodeProxy
from orch.server.nodes.usage_pages import UsagePages
from orch.server.objects.backend import Backend
from orch.server.objects.charging import Charging, on_its_node
from orch.server.objects.document import decode, key_of
from orch.server.objects.informer import StorageInformer, SyncCheck
from orch.server.objects.selection import selectable
from orch.server.pressure import MemoryPressure
from orch.server.request import aliases
from orch.server.request_filter import RequestFilter
from orch.server.storage import health
from orch.server.storage.base import Storage, StorageFailed, StorageUnavailable, Stored
from orch.server.storage.flags import make_storage
from orch.server.storage.health import StorageHealth
from orch.server.storage.tally import NodeTally
from orch.server.strategy import pods
from orch.server.strategy.base import text_at
from orch.server.strategy.table import ServedKinds
from orch.server.webhooks.admission import AdmissionWebhooks
from orch.server.webhooks.authentication import TokenWebhook
from orch.server.webhooks.authorization_configuration import Authorization
from orch.server.webhooks.metrics import AdmissionWebhookMetrics
from orch.wire.errors import ApiError
from orch.wire.records.kinds import PODS, SIGNING_REQUESTS

NAME = "orch-apiserver"
_HISTORY_BYTES_UNDER_PRESSURE = 8 * 1024 * 1024


class Server:
    """`app` answers requests once `open` has returned; `loops` must run beside it."""

    def __init__(self, flags: Flags) -> None:
        self._flags = flags
        self._opened = False
        self._stopping = False
        self._kinds = ServedKinds()
        self._metrics = ServerMetrics(flags.metric_policy, self._kinds)
        self._metrics.registry.register(
            FrameworkMetrics(flags.features, emulated=flags.emulated_version)
        )
        self.storage: Storage = make_storage(flags.storage, self._metrics.storage.observe_etcd)
        index = RbacIndex()
        graph = NodeGraph()
        nodes = NodeAuthorizer(self._node_of_pod, graph)
        self._authorization = Authorization(
            flags.auth, self._metrics.registry, nodes, index, self._asker
        )
        self.authorizer = self._authorization.chain
        charging = Charging(self.storage, flags.storage.bounds)
        follow = partial(_follow_pod, graph, charging.nodes)
        self._pods = StorageInformer(self.storage, PODS, follow)
        self._defaults = NamespaceDefaults(flags.auth.root_ca_file)
        self._webhooks = AdmissionWebhooks(
            self.storage,
            AdmissionWebhookMetrics(self._metrics.registry),
            partial(admission_steps.labels_of, self.storage),
        )
        self._backend = self._make_backend(index, charging)
        first = flags.auth.bootstrap_token_file
        self._first_token = bootstrap_tokens.read_first(first) if first else None
        self._quotas = QuotaUsage(self.storage, charging)
        shared, upstream = bool(flags.storage.servers), flags.serve_upstream_aliases
        self._custom = CustomKinds(self._backend, is_shared=shared, upstream=upstream)
        self._roles = Roles(self._backend, index, upstream=flags.serve_upstream_aliases)
        self.storage_health = StorageHealth(self.storage)
        self.flows = FlowControl(_flow_limits(flags), self._metrics.inflight)
        self._metrics.registry.register(FlowMetrics(self.flows.levels))
        self.slow_clients = SlowClients(NAME)
        memory = flags.limits.memory_bytes
        self.pressure = MemoryPressure(ProcessMemory(), memory, self._relieve_memory)
        self._metrics.add_memory(self.pressure, self.slow_clients)
        audit = flags.audit
        self._auditor, self._audit_log = auditor_of(
            audit.policy_file, audit.log_path, audit.rotation, self._metrics
        )
        self._slis = SliMetrics()
        self._health = self._health_checks()
        self._token_webhook = TokenWebhook.of(flags.auth)
        remote = None if self._token_webhook is None else self._token_webhook.holder
        self._credentials = Credentials(flags.auth, self.storage, self._backend.now, remote)
        tls = flags.agent_tls
        files = tls.files()
        self._proxy = NodeProxy(
            self._backend, tls.context(), allow_local=flags.node_proxy_allow_loopback
        )
        self._renewal = tls.renewal(self._proxy, files)
        self._collector = GarbageCollector(self._backend, upstream=flags.serve_upstream_aliases)
        self._usage = UsagePages(self._backend, self._proxy)
        self._streams = AgentStreams(self._proxy)
        self.app = self._application()

    def _make_backend(self, index: RbacIndex, charging: Charging) -> Backend:
        tokens = self._flags.auth.gives_pods_tokens
        steps = admission_steps.steps(self.storage, self.authorizer, index, tokens=tokens)
        backend = admission_steps.backend(self.storage, (*steps, self._pod_security()))
        timed = self._metrics.admission.timed
        return replace(
            backend,
            kinds=self._kinds,
            before_creation=self._defaults.before_creation,
            charge=charging.charged,
            admission={kind: (timed(own),) for kind, own in backend.admission.items() if own},
            webhooks=self._webhooks,
        )

    async def open(self) -> None:
        """Load storage and create the initial objects; SetupError when storage cannot be used."""
        if self._audit_log is not None:
            await asyncio.to_thread(self._audit_log.open)
        try:
            await self.storage.open()
            await namespaces.make_initial_objects(self._backend)
            if self._first_token is not None:
                await bootstrap_tokens.make_first(self._backend, *self._first_token)
            await self._custom.open()
            await self._roles.open()
            self._pods.load()
            for informer in self._webhooks.informers:
                informer.load()
            self._quotas.informer.load()
            await self.storage_health.look()
        except StorageUnavailable as error:
            raise SetupError(f"{error}; start etcd, or correct --etcd-servers") from error
        except (StorageFailed, ApiError) as error:
            raise SetupError(str(error)) from error
        self._opened = True

    def informers(self) -> list[Loop]:
        """The loops that follow storage; without them authorization is out of date."""
        return [*self._informers(), self._roles.aggregation, self._custom.loop]

    def _informers(self) -> list[StorageInformer]:
        return [
            self._pods, self._quotas.informer, self._custom.informer,
            *self._webhooks.informers, *self._roles.informers,
        ]  # fmt: skip

    def loops(self) -> list[Loop]:
        """Everything that runs beside the requests."""
        measuring = Periodic("usage", self._usage.refresh, interval_s=usage_pages.INTERVAL_S)
        return [
            *([measuring] if self._flags.serve_upstream_aliases else []),
            *self.informers(),
            self._health.loop,
            self.pressure.loop,
            Periodic("storage health", self.storage_health.look, interval_s=health.INTERVAL_S),
            Periodic(
                "namespaces",
                partial(namespaces.empty_terminating, self._backend),
                interval_s=namespaces.INTERVAL_S,
            ),
            self._collector.loop,
            self._quotas.loop,
            Periodic(
                "service accounts",
                partial(self._defaults.step, self._backend),
                interval_s=namespaces.INTERVAL_S,
            ),
            Periodic(
                "events",
                partial(event_ttl.expire_events, self._backend),
                interval_s=event_ttl.INTERVAL_S,
                jitter=0.1,
            ),
            *self._authorization.loops(),
            Periodic(
                "bootstrap tokens",
                partial(bootstrap_tokens.expire_tokens, self._backend),
                interval_s=bootstrap_tokens.INTERVAL_S,
            ),
            *self._certificates(),
            *self._upkeep(),
        ]

    def show_certificates(self, serving: TlsRenewal) -> None:
        """Register the metrics of the certificates: of the listener, and towards agents."""
        holders = {"serving": serving}
        if self._renewal is not None:
            holders["node_proxy"] = self._renewal
        self._metrics.registry.register(CertificateMetrics(holders))

    def _relieve_memory(self) -> None:
        self.slow_clients.cut_all()
        self.storage.shrink_history(_HISTORY_BYTES_UNDER_PRESSURE)
        return_freed_memory()

    def _certificates(self) -> list[Periodic]:
        """The renewal of the certificates for agents, if they are called at all."""
        if self._renewal is None:
            return []
        interval_s = component_tls.INTERVAL_S
        return [Periodic("node proxy certificates", self._renewal.step, interval_s=interval_s)]

    def _upkeep(self) -> list[Periodic]:
        """The compaction of etcd, unless it is disabled."""
        interval_s = self._flags.storage.compaction_s
        if not (self._flags.storage.servers and interval_s):
            return []
        return [Periodic("storage", self.storage.maintain, interval_s=interval_s)]

    async def wind_down(self) -> None:
        """Fail readiness, wait for the shutdown delay, end watches, streams, proxied requests."""
        self._stopping = True
        await asyncio.sleep(self._flags.shutdown_delay_s)
        self.storage.end_watches()
        await self._streams.close()
        await self._proxy.close()

    async def close(self) -> None:
        await self._proxy.close()
        await self._webhooks.close()
        await self._authorization.close()
        if self._token_webhook is not None:
            await self._token_webhook.close()
        await self.storage.close()
        if self._audit_log is not None:
            await asyncio.to_thread(self._audit_log.close)

    def _application(self) -> web.Application:
        upstream = self._flags.serve_upstream_aliases
        request_filter = RequestFilter(
            self._credentials.authenticate,
            self.authorizer,
            self.flows,
            self._metrics,
            Deadlines(self._flags.limits.timeout_s),
            self.pressure,
            own_request=aliases.own_request if upstream else None,
            auditor=self._auditor,
            open_paths=self._credentials.open_paths,
            challenge=self._credentials.challenge,
        )
        address = f"{self._flags.bind_addresses[0]}:{self._flags.secure_port}"
        resources = aliases.served_resources(upstream=upstream)
        own = aliases.OWN_GROUPS if upstream else ()
        published = Published(self._kinds, resources, address, own)
        others = nonresource.routes(published, self._health, self._slis, self._metrics_page)
        others += self._usage.routes() if upstream else []
        others += nonresource.openid_routes(self._credentials.accounts)
        pages = ZPages(NAME, self._flags.shown, emulated=self._flags.emulated_version)
        others += pages.routes(self._flags.features)
        others.append(configz("apiserverconfig", self._configuration))
        others.append(nonresource.index(others, published))
        who = self._credentials
        reviews = Reviews(self.authorizer, who.tokens.review, self._backend.now)
        issuing = TokenRequests(
            self._backend, who.accounts, self._flags.auth.audiences, self.authorizer
        )
        connectors = {
            ("nodes", "proxy"): self._streams.handle,
            ("pods", "log"): PodLogs(self._backend, self._proxy).handle,
            **PodStreams(self._backend, self._streams).handlers(),
            ("serviceaccounts", "token"): issuing.handle,
            **reviews.handlers(),
        }
        scale = scaling.handlers(self._backend)
        handlers = ResourceHandlers(self._backend, connectors, self._deleted, scale)
        return application.build(request_filter, handlers, others)

    def _deleted(self) -> None:
        self._collector.loop.wake()
        self._quotas.loop.wake()

    def _pod_security(self) -> PodSecurity:
        newest = self._flags.emulated_version.minor
        return PodSecurity(
            read_settings(self._flags.admission_file),
            partial(admission_steps.labels_of, self.storage),
            partial(namespaces.survey_pods, self.storage),
            PodSecurityMetrics(self._metrics.registry, newest),
            newest,
        )

    def _configuration(self) -> dict[str, Any]:
        """The flags, with the effective feature gates."""
        gates = {gate.name: on for gate, on in self._flags.features.all()}
        return {**self._flags.shown, "feature-gates": gates}

    def _health_checks(self) -> HealthChecks:
        """Checks under the reference's names: `etcd` is any storage."""
        checks = HealthChecks(self._slis)
        checks.add("ping", lambda: None)
        checks.add("log", check_log, endpoints=("healthz", "readyz"))  # a restart mends nothing
        checks.add("etcd", self.storage_health.check)
        checks.add("etcd-readiness", self.storage_health.check, endpoints=("readyz",))
        checks.add("poststarthook/rbac/bootstrap-roles", self._check_opened)
        synced = SyncCheck(self.storage, self._informers())
        checks.add("informer-sync", synced, endpoints=("readyz",))
        checks.add("shutdown", self._check_running, endpoints=("readyz",))
        return checks

    def _check_opened(self) -> None:
        if not self._opened:
            raise CheckFailed("the initial roles do not exist yet")

    def _check_running(self) -> None:
        if self._stopping:
            raise CheckFailed("the process is shutting down")

    def _node_of_pod(self, namespace: str, name: str) -> str | None:
        stored = self.storage.get(key_of(PODS, namespace, name))
        if stored is None:
            return None
        return selectable(pods.STRATEGY, stored).fields["spec.nodeName"]

    def _asker(self, request: str) -> str:
        stored = self.storage.get(key_of(SIGNING_REQUESTS, "", request))
        return "" if stored is None else text_at(stored.once("document", decode), "spec.username")

    async def _metrics_page(self, accept: str) -> tuple[bytes, str]:
        """Rendered on a thread: the page reads files of /proc."""
        can_list = self.storage_health.can_list
        self._metrics.storage.observe(self.storage, self._kinds, can_list=can_list)
        return await asyncio.to_thread(self._metrics.registry.render, accept)


def _flow_limits(flags: Flags) -> Limits:
    given = flags.limits
    return Limits(given.seats, given.timeout_s, flags.max_connections, given.tenant_changes)


def _follow_pod(graph: NodeGraph, nodes: NodeTally, key: str, stored: Stored | None) -> None:
    if stored is None:
        graph.drop(key)
        nodes.drop(key)
    else:
        pod = decode(stored)
        graph.put(key, pod)
        nodes.put(key, pods.node_of(pod), on_its_node(pod, stored.data))
