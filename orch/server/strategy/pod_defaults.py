"""Defaults of a pod, as the reference's defaulting fills them in; pure."""

from __future__ import annotations

from typing import Any

from orch.server.strategy.base import Document
from orch.wire import quantity, raw
from orch.wire.podrules.podspec import (
    DEFAULT_GRACE_S,
    DEFAULT_TOLERATION_S,
    NO_EXECUTE,
    TOLERATED_BY_DEFAULT,
    document_places,
    pull_policy,
)
from orch.wire.podrules.references import TOKEN_S
from orch.wire.podrules.resources import RESIZED, at_once

_SPEC = {
    "restartPolicy": "Always",
    "terminationGracePeriodSeconds": DEFAULT_GRACE_S,
    "dnsPolicy": "ClusterFirst",
    "schedulerName": "default-scheduler",
    "enableServiceLinks": True,
}
_CONTAINER = {"terminationMessagePath": "/dev/termination-log", "terminationMessagePolicy": "File"}
_PROBE = {"timeoutSeconds": 1, "periodSeconds": 10, "successThreshold": 1, "failureThreshold": 3}
_PROBES = ("livenessProbe", "readinessProbe", "startupProbe")
_TOLERATION = {
    "operator": "Exists",
    "effect": NO_EXECUTE,
    "tolerationSeconds": DEFAULT_TOLERATION_S,
}
_FILE_MODE = 0o644
_FILE_VOLUMES = ("configMap", "secret", "downwardAPI", "projected")


def fill(spec: Document) -> None:
    """Complete the spec of a pod in place."""
    complete(spec)
    _tolerate_unusable_nodes(spec)


def complete(spec: Document) -> None:
    """Complete a spec that need not be a pod's yet: without what admission gives pods."""
    for name, value in _SPEC.items():
        if spec.get(name) in (None, ""):
            spec[name] = value
    spec.setdefault("securityContext", {})
    for _, container in document_places(spec):
        fill_container(container, host_network=bool(spec.get("hostNetwork")))
    _request_for_the_pod(spec)
    for volume in spec.get("volumes") or ():
        _fill_volume(volume)


def fill_container(container: Document, *, host_network: bool) -> None:
    """Complete one container of a spec in place."""
    container["resources"] = container.get("resources") or {}
    for name, value in _CONTAINER.items():
        container[name] = container.get(name) or value
    image, policy = container.get("image") or "", container.get("imagePullPolicy")
    container["imagePullPolicy"] = pull_policy(image, policy)
    for port in container.get("ports") or ():
        port["protocol"] = port.get("protocol") or "TCP"
        if host_network and not port.get("hostPort"):
            port["hostPort"] = port.get("containerPort")
    for variable in container.get("env") or ():
        reference = (variable.get("valueFrom") or {}).get("fieldRef")
        if reference:
            reference.setdefault("apiVersion", "v1")
    for name in _PROBES:
        if container.get(name):
            _fill_probe(container[name])
    _request_what_is_limited(container["resources"])


def fill_sizes(spec: Document) -> None:
    """Complete the resources alone, in place."""
    for _, container in document_places(spec):
        container["resources"] = container.get("resources") or {}
        _request_what_is_limited(container["resources"])
    _request_for_the_pod(spec)


def _request_for_the_pod(spec: Document) -> None:
    """A pod that is limited as a whole requests what its containers do, or else what limits it."""
    resources = spec.get("resources") or {}
    limits: dict[str, Any] = resources.get("limits") or {}
    if not limits:
        return
    together = at_once(spec)
    wanted = {name: together.get(f"requests.{name}", 0) for name in RESIZED}
    added = {name: _written(name, amount) for name, amount in wanted.items() if amount}
    resources["requests"] = {**limits, **added, **(resources.get("requests") or {})}


def _written(name: str, milli: int) -> str:
    if name == "cpu":
        return quantity.format_milli(milli)
    return quantity.format_bytes(-(-milli // 1000))


def _fill_probe(probe: Document) -> None:
    for name, value in _PROBE.items():
        if not probe.get(name):
            probe[name] = value
    if probe.get("httpGet"):
        probe["httpGet"].setdefault("scheme", "HTTP")
        probe["httpGet"].setdefault("path", "/")
    if probe.get("grpc"):
        probe["grpc"].setdefault("service", "")  # kubectl describe needs it


def _request_what_is_limited(resources: Document) -> None:
    limits: dict[str, Any] = resources.get("limits") or {}
    if limits:
        resources["requests"] = {**limits, **(resources.get("requests") or {})}


def _fill_volume(volume: Document) -> None:
    if all(source is None for name, source in volume.items() if name != "name"):
        volume["emptyDir"] = {}
    if volume.get("hostPath"):
        volume["hostPath"].setdefault("type", "")
    for name in _FILE_VOLUMES:
        if volume.get(name) is not None:
            volume[name].setdefault("defaultMode", _FILE_MODE)
    for token in raw.records(volume, "projected", "sources"):
        if (wanted := token.get("serviceAccountToken")) and not wanted.get("expirationSeconds"):
            wanted["expirationSeconds"] = TOKEN_S


def _tolerate_unusable_nodes(spec: Document) -> None:
    tolerations = spec.get("tolerations") or []
    for key in TOLERATED_BY_DEFAULT:
        if not any(_covers(toleration, key) for toleration in tolerations):
            tolerations.append({"key": key, **_TOLERATION})
    spec["tolerations"] = tolerations


def _covers(toleration: Document, key: str) -> bool:
    found = toleration.get("key") or key, toleration.get("effect") or NO_EXECUTE
    return found == (key, NO_EXECUTE)
