"""Facts that follow from a pod: its containers, its origin, what it requests, what it tolerates.

The rules are the reference's: v1/helper/qos, component-helpers/resource, and
core/v1 Toleration.ToleratesTaint. `document_*` work on specs that are still JSON documents.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Mapping
from decimal import Decimal
from itertools import product
from typing import Any

from orch.wire import names, quantity, raw
from orch.wire.records.core import Taint
from orch.wire.records.pods import (
    Container,
    ContainerRestartRule,
    ContainerStatus,
    Pod,
    PodStatus,
    Toleration,
)

LASTING = ("initContainers", "containers")
LISTS = (*LASTING, "ephemeralContainers")
PULL_POLICIES = ALWAYS, IF_NOT_PRESENT, NEVER = ("Always", "IfNotPresent", "Never")

FILE, URL, API = "file", "http", "api"  # values of the source annotation
RESTARTING = _, RESTART_ALL = ("Restart", "RestartAllContainers")  # actions of rules
FINAL_PHASES = ("Succeeded", "Failed")
DEFAULT_GRACE_S = 30

GUARANTEED = "Guaranteed"
BURSTABLE = "Burstable"
BEST_EFFORT = "BestEffort"
_QOS_RESOURCES = ("cpu", "memory")

NO_SCHEDULE, PREFER_NO_SCHEDULE, NO_EXECUTE = EFFECTS = (
    "NoSchedule", "PreferNoSchedule", "NoExecute"
)  # fmt: skip
# How long a pod without tolerations of its own stays on a node with one of these taints.
DEFAULT_TOLERATION_S = 300
_EQUAL = (None, "", "Equal")  # operators
TOLERATED_BY_DEFAULT = (names.TAINT_NOT_READY, names.TAINT_UNREACHABLE)


def all_containers(pod: Pod) -> list[Container]:
    return [container for _, container in places(pod)]


def lasting(pod: Pod) -> list[Container]:
    """All but the ephemeral containers, which start once and ask for no resources."""
    return [*(pod.spec.initContainers or ()), *pod.spec.containers]


def places(pod: Pod) -> Iterator[tuple[str, Container]]:
    """Each container with its path (`spec.containers[0]`), in the order of LISTS."""
    for name in LISTS:
        for index, container in enumerate(getattr(pod.spec, name) or ()):
            yield f"spec.{name}[{index}]", container


def place_of(pod: Pod, container: Container) -> str:
    """The path of a container of the pod, by its name."""
    found = (place for place, other in places(pod) if other.name == container.name)
    return next(found, f"container {container.name}")


def container_statuses(status: PodStatus) -> list[ContainerStatus]:
    """The statuses of all containers, in the order of LISTS."""
    listed = (
        status.initContainerStatuses,
        status.containerStatuses,
        status.ephemeralContainerStatuses,
    )
    return [found for statuses in listed for found in statuses or ()]


def document_places(
    spec: Mapping[str, Any], lists: tuple[str, ...] = LISTS
) -> Iterator[tuple[str, dict[str, Any]]]:
    """`places` of a spec that is a document."""
    for name in lists:
        for index, container in enumerate(spec.get(name) or ()):
            yield f"spec.{name}[{index}]", container


def document_fields(spec: Mapping[str, Any]) -> set[str]:
    """The names of the fields that a document has itself, or that a container of it has."""
    return set(spec).union(*(container for _, container in document_places(spec)))


def find_container(pod: Pod, name: str) -> Container | None:
    return next((c for c in all_containers(pod) if c.name == name), None)


def container_type(pod: Pod | None, name: str) -> str:
    """`container`, `init_container` or `ephemeral_container`, as metrics name them."""
    if any(c.name == name for c in (pod and pod.spec.initContainers) or ()):
        return "init_container"
    if any(c.name == name for c in (pod and pod.spec.ephemeralContainers) or ()):
        return "ephemeral_container"
    return "container"


def is_sidecar(container: Container) -> bool:
    """Whether an init container keeps running beside the others."""
    return container.restartPolicy == "Always"


def starts_again(pod: Pod, container: Container, exit_code: int) -> bool:
    """Whether a container that ended so starts again: by its rules, its policy or the pod's."""
    if fitting_rule(container, exit_code):
        return True
    policy = container.restartPolicy or pod.spec.restartPolicy
    return exit_code != 0 if policy == "OnFailure" else policy != "Never"


def fitting_rule(container: Container, exit_code: int) -> ContainerRestartRule | None:
    """The first of its rules that an end fits."""
    rules = container.restartPolicyRules if container.restartPolicy else None
    return next((rule for rule in rules or () if _fits(rule, exit_code)), None)


def _fits(rule: ContainerRestartRule, exit_code: int) -> bool:
    codes = rule.exitCodes
    if rule.action not in RESTARTING or codes is None or codes.operator not in ("In", "NotIn"):
        return False
    return (exit_code in (codes.values or ())) == (codes.operator == "In")


def pull_policy(image: str, given: str | None = None) -> str:
    """The given policy, else Always for a moving tag: latest, or none and no digest."""
    _, _, tag = image.rpartition("/")[2].partition(":")
    moves = "@" not in image and tag in ("", "latest")
    return given or (ALWAYS if moves else IF_NOT_PRESENT)


def is_static(pod: Pod) -> bool:
    """Whether the pod comes from a file or a URL and not from the API."""
    annotations = pod.metadata.annotations or {}
    return annotations.get(names.ANNOTATION_CONFIG_SOURCE) in (FILE, URL)


def is_mirror(pod: Pod) -> bool:
    """Whether the pod only represents a static pod of its node: deleting it stops nothing."""
    return names.ANNOTATION_CONFIG_MIRROR in (pod.metadata.annotations or {})


def mirror_hash(document: Mapping[str, Any]) -> str | None:
    """The hash of the static pod that a document mirrors; None when it is not a mirror pod."""
    annotations = raw.mapping(document, "metadata", "annotations")
    return annotations.get(names.ANNOTATION_CONFIG_MIRROR)


def is_critical(pod: Pod) -> bool:
    """Whether the node never evicts the pod."""
    return is_static(pod) or (pod.spec.priority or 0) >= names.CRITICAL_PRIORITY


def limits(container: Container) -> Mapping[str, Any]:
    return (container.resources and container.resources.limits) or {}


def effective_limits(pod: Pod, container: Container) -> Mapping[str, Any]:
    """The container's limits; of cpu and memory, those of the pod where it has none."""
    return {**_of_both(pod_level(pod, "limits")), **_above_zero(limits(container))}


def _of_both(amounts: Mapping[str, Any]) -> dict[str, Any]:
    return {name: amounts[name] for name in _QOS_RESOURCES if name in amounts}


def _above_zero(amounts: Mapping[str, Any]) -> dict[str, Any]:
    return {name: amount for name, amount in amounts.items() if amount not in (0, "0")}


def requests(container: Container) -> Mapping[str, Any]:
    """The container's requests; a limit without a request counts as one."""
    given = (container.resources and container.resources.requests) or {}
    return {**limits(container), **given}


def pod_level(pod: Pod, part: str) -> Mapping[str, Any]:
    """The `requests` or `limits` of a pod as a whole; a limit without a request counts as one,
    unless its containers request some.
    """
    resources = pod.spec.resources
    given: Mapping[str, Any] = (resources and getattr(resources, part)) or {}
    if part == "limits" or not (most := resources and resources.limits):
        return given
    spread = {name for container in lasting(pod) for name in requests(container)}
    return {**{name: amount for name, amount in most.items() if name not in spread}, **given}


def asks_for_extended(pod: Pod) -> bool:
    """Whether a container asks for an extended resource, `example.com/name`, devices perhaps."""
    return any("/" in name for container in all_containers(pod) for name in limits(container))


def requested(pod: Pod, resource: str, read: Callable[[Any], int] = quantity.to_milli) -> int:
    """What must be free for the pod, in thousandths unless `read` counts otherwise."""
    whole = _pod_level_request(pod, resource)
    if whole is not None:
        return read(whole) + _overhead(pod, resource, read)
    parts = _at_once(pod, lambda container: read(request(container, resource) or 0))
    return parts + _overhead(pod, resource, read)


def request(container: Container, resource: str) -> Any:
    """`requests` of one resource, whatever the number of the others; None if there is none."""
    given = container.resources and container.resources.requests
    return given[resource] if given and resource in given else limits(container).get(resource)


def _pod_level_request(pod: Pod, resource: str) -> Any:
    """Likewise of `pod_level`."""
    resources = pod.spec.resources
    given, most = (resources and resources.requests) or {}, (resources and resources.limits) or {}
    if resource in given or resource not in most:
        return given.get(resource)
    spread = any(request(container, resource) is not None for container in lasting(pod))
    return None if spread else most[resource]


def limited(pod: Pod, resource: str, read: Callable[[Any], int] = quantity.to_milli) -> int | None:
    """What the pod may use at most; None unless it or each of its containers is limited."""
    whole = pod_level(pod, "limits")
    if resource in whole:
        return read(whole[resource]) + _overhead(pod, resource, read)
    if any(resource not in limits(container) for container in lasting(pod)):
        return None
    parts = _at_once(pod, lambda container: read(limits(container)[resource]))
    return parts + _overhead(pod, resource, read)


def _overhead(pod: Pod, resource: str, read: Callable[[Any], int]) -> int:
    """What the runtime itself needs for the pod."""
    amounts = pod.spec.overhead
    return read(amounts.get(resource, 0)) if amounts else 0


def _at_once(pod: Pod, amount: Callable[[Container], int]) -> int:
    init = (
        (amount(container), is_sidecar(container)) for container in pod.spec.initContainers or ()
    )
    return most_at_once(init, map(amount, pod.spec.containers))


def most_at_once(init: Iterable[tuple[int, bool]], containers: Iterable[int]) -> int:
    """The amounts of all that run side by side, or if more, of an init container.

    `init` are the amounts of init containers in order, each with whether it is a sidecar: those
    run beside all that come after them.
    """
    largest = sidecars = 0
    for amount, is_sidecar in init:
        if is_sidecar:
            sidecars += amount
        else:
            largest = max(largest, sidecars + amount)
    return max(largest, sidecars + sum(containers))


def qos_class(pod: Pod) -> str:
    """`Guaranteed`, `Burstable` or `BestEffort`, over containers and init containers.

    Guaranteed when every container limits cpu and memory and requests exactly that, BestEffort when
    none requests anything. ValueError for a malformed amount.
    """
    if pod.spec.resources is not None:
        amounts = [tuple(_counted(pod_level(pod, part)) for part in ("requests", "limits"))]
    else:
        amounts = [(_counted(requests(c)), _counted(limits(c))) for c in lasting(pod)]
    if not any(wanted or limited for wanted, limited in amounts):
        return BEST_EFFORT
    if all(
        len(limited) == len(_QOS_RESOURCES) and wanted == limited for wanted, limited in amounts
    ):
        return GUARANTEED
    return BURSTABLE


def _counted(amounts: Mapping[str, Any]) -> dict[str, Decimal]:
    """The cpu and memory amounts above zero."""
    counted = {k: quantity.parse_quantity(amounts[k]) for k in _QOS_RESOURCES if k in amounts}
    return {name: amount for name, amount in counted.items() if amount > 0}


def tolerates(toleration: Toleration, taint: Taint) -> bool:
    """An empty effect or key matches all."""
    if toleration.effect and toleration.effect != taint.effect:
        return False
    if toleration.key and toleration.key != taint.key:
        return False
    if toleration.operator == "Exists":
        return True
    if toleration.operator not in _EQUAL or not toleration.key:
        return False
    return (toleration.value or "") == (taint.value or "")


class Tolerations:
    """Those of a pod, found by what they tolerate: it may have 40,000, and a node as many taints.
    Of those that tolerate the same, the one for the shortest time stands for all.
    """

    def __init__(self, listed: Iterable[Toleration] | None) -> None:
        self._found: dict[tuple[str, str | None, str], Toleration] = {}
        for one in listed or ():
            value = None if one.operator == "Exists" else one.value or ""
            if value is None or one.operator in _EQUAL:
                kind = (one.key or "", value, one.effect or "")
                held = self._found.get(kind)
                if held is None or _lasts_s(one) < _lasts_s(held):
                    self._found[kind] = one

    def of(self, taint: Taint) -> list[Toleration]:
        """Those that tolerate it."""
        kinds = product((taint.key, ""), (None, taint.value or ""), (taint.effect, ""))
        found = (self._found.get(kind) for kind in kinds)
        return [one for one in found if one is not None and tolerates(one, taint)]


def _lasts_s(toleration: Toleration) -> float:
    seconds = toleration.tolerationSeconds
    return math.inf if seconds is None else seconds
