"""How containers live: probes, hooks, the signal to stop, and when they start again; pure.

Rules, field paths and texts are the reference's (K:pkg/apis/core/validation). Restarting all
containers of a pod by a rule of one of them is not offered.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any

from orch.wire import causes, raw
from orch.wire.errors import Cause
from orch.wire.podrules.podspec import RESTARTING
from orch.wire.podrules.resources import NOT_NEGATIVE
from orch.wire.validation import header_name_problems, port_problems

Document = Mapping[str, Any]

_SCHEMES = ("HTTP", "HTTPS")
_RESTART_POLICIES = ("Always", "Never", "OnFailure")
_READINESS = "readinessProbe"
PROBES = ("livenessProbe", _READINESS, "startupProbe")
_HOOKS = ("postStart", "preStop")
_PROBE_HANDLERS = ("exec", "httpGet", "tcpSocket", "grpc")
_HOOK_HANDLERS = ("exec", "httpGet", "tcpSocket", "sleep")
_PROBE_NUMBERS = (
    "initialDelaySeconds", "timeoutSeconds", "periodSeconds", "successThreshold",
    "failureThreshold",
)  # fmt: skip
RESTARTS = ("restartPolicy", "restartPolicyRules")  # of a container
_RULE_OPERATORS = ("In", "NotIn")
_RULES_MAX, _CODES_MAX = 20, 255
_SIGNAL_NAMES = (
    "ABRT ALRM BUS CHLD CLD CONT FPE HUP ILL INT IO IOT KILL PIPE POLL PROF PWR QUIT RTMAX RTMIN"
    " SEGV STKFLT STOP SYS TERM TRAP TSTP TTIN TTOU URG USR1 USR2 VTALRM WINCH XCPU XFSZ"
)
_SIGNALS = frozenset(
    (
        *(f"SIG{name}" for name in _SIGNAL_NAMES.split()),
        *(f"SIGRTMIN+{number}" for number in range(1, 16)),
        *(f"SIGRTMAX-{number}" for number in range(1, 15)),
    )
)


def restart_causes(container: Document, path: str) -> Iterator[Cause]:
    """Of a container's own policy, and of its rules, which need one."""
    yield from causes.unless_one_of(container, "restartPolicy", _RESTART_POLICIES, path)
    rules = raw.records(container, "restartPolicyRules")
    if not rules:
        return
    if not container.get("restartPolicy"):
        text = "must specify restartPolicy when restart rules are used"
        yield causes.required(f"{path}.restartPolicy", text)
    if len(rules) > _RULES_MAX:
        yield causes.too_many(f"{path}.restartPolicyRules", len(rules), _RULES_MAX)
        return
    for index, rule in enumerate(rules):
        yield from _rule_causes(rule, f"{path}.restartPolicyRules[{index}]")


def _rule_causes(rule: Document, path: str) -> Iterator[Cause]:
    if rule.get("action") not in RESTARTING:
        yield causes.not_supported(f"{path}.action", rule.get("action"), RESTARTING)
    codes = rule.get("exitCodes")
    if codes is None:
        yield causes.required(f"{path}.exitCodes", "must be specified")
        return
    if codes.get("operator") not in _RULE_OPERATORS:
        given = codes.get("operator")
        yield causes.not_supported(f"{path}.exitCodes.operator", given, _RULE_OPERATORS)
    if len(values := codes.get("values") or ()) > _CODES_MAX:
        yield causes.too_many(f"{path}.exitCodes.values", len(values), _CODES_MAX)


def hook_causes(hooks: Document, path: str, grace_s: int, system: str) -> Iterator[Cause]:
    """Of a container's `lifecycle`; `system` is the pod's `os.name`."""
    for name in _HOOKS:
        if hooks.get(name) is not None:
            yield from _handler_causes(hooks[name], f"{path}.{name}", _HOOK_HANDLERS, grace_s)
    if (signal := hooks.get("stopSignal")) is None:
        return
    at = f"{path}.stopSignal"
    if not system:
        text = "may not be set for containers with empty `spec.os.name`"
        yield causes.forbidden(at, text)
    elif signal not in _SIGNALS:
        yield causes.not_supported(at, signal, _SIGNALS)


def probe_causes(probe: Document, path: str, kind: str) -> Iterator[Cause]:
    yield from _handler_causes(probe, path, _PROBE_HANDLERS, 0)
    for name in _PROBE_NUMBERS:
        if (probe.get(name) or 0) < 0:
            yield causes.invalid_value(f"{path}.{name}", probe[name], NOT_NEGATIVE)
    successes, grace_s = probe.get("successThreshold"), probe.get("terminationGracePeriodSeconds")
    at = f"{path}.terminationGracePeriodSeconds"
    if grace_s is not None and grace_s <= 0:
        yield causes.invalid_value(at, grace_s, "must be greater than 0")
    if kind == _READINESS and grace_s is not None:
        yield causes.invalid_value(at, grace_s, "must not be set for readinessProbes")
    if kind != _READINESS and successes not in (None, 0, 1):
        yield causes.invalid_value(f"{path}.successThreshold", successes, "must be 1")


def _handler_causes(
    record: Document, path: str, kinds: tuple[str, ...], grace_s: int
) -> Iterator[Cause]:
    """A probe or a hook has exactly one handler."""
    named = [name for name in kinds if record.get(name) is not None]
    if not named:
        yield causes.required(path, "must specify a handler type")
        return
    for extra in named[1:]:
        yield causes.forbidden(f"{path}.{extra}", "may not specify more than 1 handler type")
    handler, at = record[named[0]], f"{path}.{named[0]}"
    if named[0] == "sleep":
        yield from _sleep_causes(handler, at, grace_s)
    else:
        yield from _HANDLERS[named[0]](handler, at)


def _exec_causes(handler: Document, path: str) -> Iterator[Cause]:
    return causes.unless_given(handler, path, "command")


def _http_causes(handler: Document, path: str) -> Iterator[Cause]:
    yield from _socket_causes(handler, path)
    yield from causes.unless_one_of(handler, "scheme", _SCHEMES, path)
    for header in handler.get("httpHeaders") or ():
        name, at = header.get("name") or "", f"{path}.httpHeaders"
        yield from causes.invalid_values(at, name, header_name_problems(name))


def _socket_causes(handler: Document, path: str) -> Iterator[Cause]:
    port = handler.get("port", 0)
    return causes.invalid_values(f"{path}.port", port, port_problems(port))


def _sleep_causes(handler: Document, path: str, grace_s: int) -> Iterator[Cause]:
    seconds = handler.get("seconds") or 0
    if not 0 <= seconds <= grace_s:
        text = f"must be non-negative and less than terminationGracePeriodSeconds ({grace_s})"
        yield causes.invalid_value(path, seconds, text)


_HANDLERS: Mapping[str, Callable[[Document, str], Iterator[Cause]]] = {
    "exec": _exec_causes,
    "grpc": _socket_causes,
    "httpGet": _http_causes,
    "tcpSocket": _socket_causes,
}
