"""The name of a pod, and how it resolves others; pure.

As in the reference agent: `dnsPolicy` chooses between the cluster's servers and what the node's
resolver file says, `dnsConfig` adds to it, and what a resolver library would not read is left out.
The text of the node's file is a parameter.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from nodeagent.pods.spec.env import SpecError
from orch.wire.records.pods import Pod, PodDNSConfig

RESOLV_CONF = "/etc/resolv.conf"  # what a runtime copies when it is told nothing
HOSTNAME_MAX = 63
_KERNEL_NAME_MAX = 64
_SERVERS_MAX = 3
_SEARCHES_MAX = 32
_SEARCH_MAX = 253  # some libraries abort at a longer one
_SEARCH_LINE_MAX = 2048
_CLUSTER_FIRST = ("", "ClusterFirst")
_CLUSTER_OPTIONS = ("ndots:5",)
_MISSING = (
    "no clusterDNS is configured on this node, so the pod cannot have the policy "
    '"ClusterFirst". Falling back to "Default" policy.'
)


@dataclass(frozen=True, slots=True)
class DnsSettings:
    """Of the node. `domain` is the cluster's, "" when there is none; `resolv_conf` "": no file."""

    servers: Sequence[str] = ()
    domain: str = ""
    resolv_conf: str = RESOLV_CONF


NO_DNS = DnsSettings()  # of a cluster


@dataclass(frozen=True, slots=True)
class Dns:
    """The lines of a resolver file; all empty: the runtime is told nothing."""

    servers: Sequence[str] = ()
    searches: Sequence[str] = ()
    options: Sequence[str] = ()


Note = tuple[str, str]  # reason and message of an event


def hostname(pod: Pod) -> str:
    """Of a pod in a network of its own."""
    if pod.spec.hostnameOverride:
        return pod.spec.hostnameOverride[:_KERNEL_NAME_MAX]
    return (pod.spec.hostname or pod.metadata.name)[:HOSTNAME_MAX].rstrip("-.")


def full_name(pod: Pod, settings: DnsSettings) -> str:
    """The host name within the pod's subdomain; "" without one.

    It ends in a dot where there is no cluster domain, as in the reference.
    """
    if not pod.spec.subdomain or pod.spec.hostnameOverride:
        return ""
    parts = (hostname(pod), pod.spec.subdomain, pod.metadata.namespace or "", "svc")
    return ".".join((*parts, settings.domain))


def kernel_name(pod: Pod, settings: DnsSettings) -> str:
    """What the kernel calls the pod's host. SpecError: its full name is too long for it."""
    name = full_name(pod, settings) if pod.spec.setHostnameAsFQDN else ""
    if len(name) > _KERNEL_NAME_MAX:
        raise SpecError(
            f"failed to construct FQDN from pod hostname and cluster domain, FQDN {name} is too "
            f"long ({_KERNEL_NAME_MAX} characters is the max, {len(name)} characters requested): "
            "leave out spec.setHostnameAsFQDN"
        )
    return name or hostname(pod)


def file_read(pod: Pod, settings: DnsSettings) -> str:
    """The node's file that `pod_dns` needs the text of; "" for none."""
    return "" if pod.spec.dnsPolicy == "None" else settings.resolv_conf


def pod_dns(pod: Pod, settings: DnsSettings, text: str) -> tuple[Dns, list[Note]]:
    """What the runtime is to be told, and what to say about it."""
    notes: list[Note] = []
    given = pod.spec.dnsConfig
    if _wants_cluster(pod) and not settings.servers and pod.spec.dnsPolicy:
        meta = pod.metadata
        about = f'pod: "{meta.name}_{meta.namespace}({meta.uid})". '
        notes.append(("MissingClusterDNS", about + _MISSING))
    if pod.spec.dnsPolicy == "None":
        base = Dns()
    elif _wants_cluster(pod) and settings.servers:
        base = _cluster_dns(pod, settings, parse(text))
    elif not settings.resolv_conf:
        base = Dns(servers=("127.0.0.1",), searches=(".",))
    elif given is None and settings.resolv_conf == RESOLV_CONF:
        return Dns(), notes  # the runtime copies the file as it is
    else:
        base = parse(text)
    return _within_limits(_joined(base, given) if given else base, notes), notes


def parse(text: str) -> Dns:
    """Of several lines the last `search` counts, and the last value of an option."""
    servers: list[str] = []
    searches: list[str] = []
    options: list[str] = []
    for words in (line.split() for line in text.splitlines()):
        match words:
            case ["nameserver", server, *_]:
                servers.append(server)
            case ["search", *domains]:
                searches = [d if d == "." else d.removesuffix(".") for d in domains]
            case ["options", *given]:
                options += given
    return Dns(servers, searches, _merged(options))


def _wants_cluster(pod: Pod) -> bool:
    policy = pod.spec.dnsPolicy or ""
    on_host = bool(pod.spec.hostNetwork)
    return policy == "ClusterFirstWithHostNet" or (policy in _CLUSTER_FIRST and not on_host)


def _cluster_dns(pod: Pod, settings: DnsSettings, node: Dns) -> Dns:
    domain = settings.domain
    own = (f"{pod.metadata.namespace}.svc.{domain}", f"svc.{domain}", domain) if domain else ()
    return Dns(settings.servers, _distinct((*own, *node.searches)), _CLUSTER_OPTIONS)


def _joined(base: Dns, given: PodDNSConfig) -> Dns:
    options = (f"{o.name}:{o.value}" if o.value else o.name for o in given.options or ())
    return Dns(
        _distinct((*base.servers, *(given.nameservers or ()))),
        _distinct((*base.searches, *(given.searches or ()))),
        _merged((*base.options, *options)),
    )


def _distinct(texts: Iterable[str]) -> tuple[str, ...]:
    return tuple(dict.fromkeys(texts))


def _merged(options: Iterable[str]) -> tuple[str, ...]:
    """Each option once, with the last value given for it."""
    return tuple({option.partition(":")[0]: option for option in options}.values())


def _within_limits(dns: Dns, notes: list[Note]) -> Dns:
    servers, searches = tuple(dns.servers[:_SERVERS_MAX]), tuple(_searches(dns.searches))
    for applied, wanted, kind, what in (
        (searches, dns.searches, "Search Line", "search paths"),
        (servers, dns.servers, "Nameserver", "nameservers"),
    ):
        if len(applied) < len(wanted):
            line = f"the applied {kind.lower()} line is: {' '.join(applied)}"
            text = f"{kind} limits were exceeded, some {what} have been omitted, {line}"
            notes.append(("DNSConfigForming", text))
    return Dns(servers, searches, dns.options)


def _searches(domains: Sequence[str]) -> Iterator[str]:
    """Those that fit into a line."""
    length = -1  # without the space before the first
    for domain in domains[:_SEARCHES_MAX]:
        if len(domain) > _SEARCH_MAX:
            continue
        length += 1 + len(domain)
        if length > _SEARCH_LINE_MAX:
            return
        yield domain
