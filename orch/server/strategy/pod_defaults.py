"""Defaults of a pod, as the reference's defaulting fills them in; pure."""

from __future__ import annotations

from typing import Any

from orch.server.strategy.base import Document
from orch.wire.podrules.podspec import (
    DEFAULT_GRACE_S,
    DEFAULT_TOLERATION_S,
    NO_EXECUTE,
    TOLERATED_BY_DEFAULT,
    document_places,
    pull_policy,
)

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
    """Complete a pod spec in place."""
    for name, value in _SPEC.items():
        if spec.get(name) in (None, ""):
            spec[name] = value
    spec.setdefault("securityContext", {})
    for _, container in document_places(spec):
        fill_container(container, host_network=bool(spec.get("hostNetwork")))
    for volume in spec.get("volumes") or ():
        _fill_volume(volume)
    _tolerate_unusable_nodes(spec)


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


def _tolerate_unusable_nodes(spec: Document) -> None:
    tolerations = spec.get("tolerations") or []
    for key in TOLERATED_BY_DEFAULT:
        if not any(_covers(toleration, key) for toleration in tolerations):
            tolerations.append({"key": key, **_TOLERATION})
    spec["tolerations"] = tolerations


def _covers(toleration: Document, key: str) -> bool:
    found = toleration.get("key") or key, toleration.get("effect") or NO_EXECUTE
    return found == (key, NO_EXECUTE)
