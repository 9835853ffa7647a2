"""Findings about settings that expose the agent and feature gates this host does not support; pure.

The rules are the CIS benchmark's section on node agents, as far as it applies (docs/hardening.md).
"""

from __future__ import annotations

from collections.abc import Iterator

from nodeagent.config.types import NodeAgentConfiguration
from orch.component.diagnostics.findings import Finding, note, ok, warn
from orch.component.flags.features import Features


def check_hardening(
    config: NodeAgentConfiguration, *, hostname_override: str, rotates: bool
) -> Iterator[Finding]:
    """A finding per setting; `rotates`: whether the API server's credential can be renewed."""
    check = "hardening"
    found = list(_access(config))
    if hostname_override:
        text = f"the node is named {hostname_override} by --hostname-override"
        found.append(note(check, text, "omit it unless the hostname cannot be used"))
    if not config.seccompDefault:
        text = "pods without a seccomp profile run unconfined"
        found.append(note(check, text, "set seccompDefault: true"))
    if config.podPidsLimit <= 0:
        text = "a pod may take all process ids of the node"
        found.append(note(check, text, "set podPidsLimit"))
    if not rotates:
        text = "the credential for the API server is embedded in the kubeconfig"
        advice = "use files (client-certificate, client-key), which are reloaded"
        found.append(note(check, text, advice))
    yield from found or [ok(check, "no setting exposes more than needed")]


def _access(config: NodeAgentConfiguration) -> Iterator[Finding]:
    check = "hardening"
    if config.authentication.anonymous.enabled:
        advice = "set authentication.anonymous.enabled: false"
        yield warn(check, "anonymous callers are admitted to the secure port", advice)
    if config.authorization.mode == "AlwaysAllow":
        advice = "set authorization.mode: Webhook"
        yield warn(check, "every authenticated caller may do everything", advice)
    if config.readOnlyPort:
        text = f"statistics and pods are open to everyone on port {config.readOnlyPort}"
        yield warn(check, text, "set readOnlyPort: 0")
    if not config.authentication.x509.clientCAFile:
        advice = "set authentication.x509.clientCAFile"
        yield note(check, "client certificates are not accepted: there is no client CA", advice)


def check_gates(
    config: NodeAgentConfiguration, features: Features, *, unified: bool, pressure: bool
) -> Iterator[Finding]:
    """Enabled features that this host or configuration does not support.

    `unified`: whether there is a cgroup v2 tree, as on hybrid hosts too.
    """
    check = "feature gates"
    found = []
    scopes = {trigger.scope for trigger in config.psiTriggers}
    if scopes and not features.enabled("NodeAgentPSITriggers"):
        advice = "set the feature gate NodeAgentPSITriggers, or remove psiTriggers"
        found.append(warn(check, "psiTriggers are set and their gate is disabled", advice))
    elif scopes and not pressure:
        advice = "boot with psi=1, or remove psiTriggers"
        found.append(warn(check, "psiTriggers need pressure stall information", advice))
    elif scopes - {"node"} and not unified:
        advice = "boot with cgroup v2, or use only psiTriggers of scope node"
        found.append(warn(check, "psiTriggers of pods and containers need cgroup v2", advice))
    if features.enabled("PodAndContainerStatsFromCRI") and not config.containerRuntimeEndpoint:
        advice = "set containerRuntimeEndpoint, or disable the gate"
        found.append(warn(check, "PodAndContainerStatsFromCRI has no runtime to query", advice))
    yield from found or [ok(check, "this host supports all that are enabled")]
