"""Settings that open the agent wider than a hardened node has it, and gates this host cannot serve.

Pure. Rules: the CIS benchmark's section on node agents, as far as it applies (docs/hardening.md).
"""

from __future__ import annotations

from collections.abc import Iterator

from nodeagent.config.types import NodeAgentConfiguration
from nodeagent.doctor.findings import Finding, note, ok, warn
from orch.component.flags.features import Features


def check_hardening(
    config: NodeAgentConfiguration, *, hostname_override: str, rotates: bool
) -> Iterator[Finding]:
    """One finding per setting; `rotates` is whether the API server's certificate can be renewed."""
    check = "hardening"
    found = [
        *_access(config),
        *((note(check, f"the node is called {hostname_override} by --hostname-override",
                "leave it out where the host's own name will do"),) if hostname_override else ()),
        *(() if config.seccompDefault else (note(
            check, "pods that ask for no seccomp profile run unconfined",
            "set seccompDefault: true"),)),
        *(() if rotates else (note(
            check, "the credential for the API server is written into the kubeconfig",
            "name files there (client-certificate, client-key): they are read again"),)),
    ]  # fmt: skip
    yield from found or [ok(check, "nothing is open wider than it has to be")]


def _access(config: NodeAgentConfiguration) -> Iterator[Finding]:
    check = "hardening"
    if config.authentication.anonymous.enabled:
        advice = "set authentication.anonymous.enabled: false"
        yield warn(check, "anonymous callers may ask the secure port", advice)
    if config.authorization.mode == "AlwaysAllow":
        advice = "set authorization.mode: Webhook"
        yield warn(check, "whoever is authenticated may do everything", advice)
    if config.readOnlyPort:
        text = f"statistics and pods are open to everyone on port {config.readOnlyPort}"
        yield warn(check, text, "set readOnlyPort: 0")
    if not config.authentication.x509.clientCAFile:
        advice = "set authentication.x509.clientCAFile"
        yield note(check, "client certificates are not accepted: there is no client CA", advice)


def check_gates(
    config: NodeAgentConfiguration, features: Features, *, unified: bool, pressure: bool
) -> Iterator[Finding]:
    """Features that were asked for and that this host or configuration cannot serve.

    `unified` is whether there is a cgroup v2 tree, which a hybrid host has too.
    """
    check = "feature gates"
    found = []
    scopes = {trigger.scope for trigger in config.psiTriggers}
    if scopes and not features.enabled("NodeAgentPSITriggers"):
        advice = "set the feature gate NodeAgentPSITriggers, or remove psiTriggers"
        found.append(warn(check, "psiTriggers are set and their gate is off", advice))
    elif scopes and not pressure:
        advice = "boot with psi=1, or remove psiTriggers"
        found.append(warn(check, "psiTriggers need pressure stalls", advice))
    elif scopes - {"node"} and not unified:
        advice = "boot with cgroup v2, or leave only psiTriggers of the node"
        found.append(warn(check, "psiTriggers of pods and containers need cgroup v2", advice))
    if features.enabled("PodAndContainerStatsFromCRI") and not config.containerRuntimeEndpoint:
        advice = "set containerRuntimeEndpoint, or switch the gate off"
        found.append(warn(check, "PodAndContainerStatsFromCRI has no runtime to ask", advice))
    yield from found or [ok(check, "this host can serve what is switched on")]
