"""The instance's bridge and firewall rules, created before the first pod and removed as a whole.

The bridge is not left to the CNI plugin, because a subnet with a route is a claim that other
instances see. `ip` and `nft` come from the base, but act on the host's own network: the private
namespace is one of mounts only.
"""

import ipaddress
import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from . import config
from .progress import RuntimeToolError, say

_INTERFACES = Path("/sys/class/net")
_DEFAULT_MTU = 1500
# The tables of the CNI plugin portmap, one for each family; all users on a machine share them.
_PORTMAP_TABLES = (("ip", "cni_hostport"), ("ip6", "cni_hostport"))

Run = Callable[..., str]  # runs one command of the base and returns its output


def ensure(layout: config.Layout, wanted: str | None, run: Run) -> str:
    """Make bridge, masquerading and CNI configuration; return the subnet, `wanted` if free."""
    subnet = _ensure_bridge(layout, wanted, run)
    mtu = _mtu(run)
    run(["ip", "link", "set", layout.bridge, "mtu", str(mtu), "up"])
    filtered = _masquerade(layout, subnet, run)
    directory = layout.cni / "conf"
    directory.mkdir(parents=True, exist_ok=True)
    conflist = config.cni_conflist(layout, subnet, mtu=mtu, host_ports=filtered)
    (directory / "10-pods.conflist").write_text(conflist)
    return str(subnet)


def remove(layout: config.Layout, run: Run) -> None:
    """Remove the bridge, what is plugged into it, and all rules, as far as they exist."""
    subnet = _address(layout, run)
    _remove_bridge(layout, run)
    try:
        tables = run(["nft", "list", "tables"]).splitlines()
    except RuntimeToolError as error:
        say(f"no firewall rules to remove: {error}")
        return
    if f"table ip {layout.bridge}" in tables:
        run(["nft", "delete", "table", "ip", layout.bridge])
    for table in _PORTMAP_TABLES:
        if f"table {' '.join(table)}" in tables:
            _remove_host_ports(table, subnet, run)


def exists(layout: config.Layout) -> bool:
    """Tell whether the instance's bridge is there."""
    return (_INTERFACES / layout.bridge).exists()


def _ensure_bridge(layout: config.Layout, wanted: str | None, run: Run) -> ipaddress.IPv4Network:
    subnet = _address(layout, run)
    if subnet is not None:
        return subnet
    _remove_bridge(layout, run)
    subnet = _free_subnet(layout, wanted, run)
    run(["ip", "link", "add", layout.bridge, "type", "bridge"])
    run(["ip", "address", "add", f"{subnet[1]}/{subnet.prefixlen}", "dev", layout.bridge])
    return subnet


def _address(layout: config.Layout, run: Run) -> ipaddress.IPv4Network | None:
    """Return the subnet of the bridge; None without a bridge, or when it has no address yet."""
    if not exists(layout):
        return None
    shown = json.loads(run(["ip", "-4", "-j", "address", "show", "dev", layout.bridge]) or "[]")
    for address in (address for link in shown for address in link.get("addr_info", ())):
        return ipaddress.IPv4Network(f"{address['local']}/{address['prefixlen']}", strict=False)
    return None


def _remove_bridge(layout: config.Layout, run: Run) -> None:
    if not exists(layout):
        return
    for port in (_INTERFACES / layout.bridge / "brif").iterdir():
        try:
            run(["ip", "link", "delete", port.name])
        except RuntimeToolError as error:
            say(f"{port.name} went by itself: {error}")  # its namespace ended a moment ago
    run(["ip", "link", "delete", layout.bridge])


def _free_subnet(layout: config.Layout, wanted: str | None, run: Run) -> ipaddress.IPv4Network:
    taken = config.routed_subnets(json.loads(run(["ip", "-4", "-j", "route"]) or "[]"))
    if wanted is not None:
        subnet = ipaddress.IPv4Network(wanted)
        if not any(subnet.overlaps(other) for other in taken):
            return subnet
    found = config.choose_subnet(layout, taken)
    if found is None:
        raise RuntimeToolError("every /24 of 10.0.0.0/8 is routed on this machine already")
    return found


def _masquerade(layout: config.Layout, subnet: ipaddress.IPv4Network, run: Run) -> bool:
    """Let pods reach what the host reaches; False when this kernel has no nftables."""
    table = f"table ip {layout.bridge} {{}}\ndelete table ip {layout.bridge}\n"
    try:
        run(["nft", "-f", "-"], given=(table + config.masquerade_nft(layout, subnet)).encode())
    except RuntimeToolError as error:
        say(f"pods reach the host only, and host ports do not work: {error}")
        return False
    return True


def _remove_host_ports(
    table: tuple[str, str], subnet: ipaddress.IPv4Network | None, run: Run
) -> None:
    """Remove what is left of our pods' host ports, and their table when nobody needs it."""
    others = any(name.name.startswith(config.BRIDGE_PREFIX) for name in _INTERFACES.iterdir())
    remaining = 0
    for rule in _host_port_rules(json.loads(run(["nft", "-j", "-a", "list", "table", *table]))):
        if _mentions(rule["expr"], subnet):
            run(["nft", "delete", "rule", *table, rule["chain"], "handle", str(rule["handle"])])
        else:
            remaining += 1
    if not remaining and not others:
        run(["nft", "delete", "table", *table])


def _host_port_rules(listed: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """Yield the rules that stand for a host port; the others only jump between chains."""
    for entry in listed["nftables"]:
        rule = entry.get("rule")
        if rule and not any("jump" in part for part in rule["expr"]):
            yield rule


def _mentions(expression: object, subnet: ipaddress.IPv4Network | None) -> bool:
    """Tell whether an address of the /24 `subnet` occurs in a rule."""
    return subnet is not None and f'"{str(subnet[0]).removesuffix("0")}' in json.dumps(expression)


def _mtu(run: Run) -> int:
    """Return the MTU towards the world, which pods must not exceed."""
    routes = json.loads(run(["ip", "-4", "-j", "route", "show", "default"]) or "[]")
    devices = [str(route["dev"]) for route in routes if "dev" in route]
    if not devices:
        return _DEFAULT_MTU
    return int((_INTERFACES / devices[0] / "mtu").read_text())
