"""The network interface this node is reached by: is there a default route, and is its link up?

Counters of that interface are what `/stats/summary` shows first; pods are reached over it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from nodeagent.doctor.findings import Finding, note, ok, warn
from nodeagent.stats import network
from nodeagent.stats.network import LinkFacts

CHECK = "network"


def check_interfaces(
    read: Callable[[], Sequence[LinkFacts]] = network.read_links,
) -> Finding:
    """One finding; `read` asks the kernel."""
    try:
        links = read()
    except OSError as error:
        advice = "allow netlink sockets (RestrictAddressFamilies=AF_NETLINK)"
        return warn(CHECK, f"the kernel does not tell its interfaces: {error}", advice)
    defaults = [link for link in links if link.is_default]
    if not defaults:
        return note(CHECK, "there is no default route", "fine for a machine of its own")
    down = [link.name for link in defaults if not link.is_up]
    if len(down) == len(defaults):
        return warn(CHECK, f"{down[0]} has the default route and is down", "bring the link up")
    shown = ", ".join(f"{link.name} (mtu {link.mtu})" for link in defaults if link.is_up)
    return ok(CHECK, f"the default route is over {shown}")
