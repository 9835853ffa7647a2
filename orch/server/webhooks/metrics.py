"""The metrics of webhooks, under the reference's names.

Codes above 600 count as 600: a webhook chooses them, and each is a label.
"""

from __future__ import annotations

from prometheus_client import Counter, Histogram

from orch.component.diagnostics.metrics import Registry
from orch.server.admission.webhooks.hooks import Hook

HIGHEST_CODE = 600
_BUCKETS = (0.005, 0.025, 0.1, 0.5, 1.0, 2.5, 10, 25)
_ASKED = ("name", "type", "operation")
_TRUNCATED = "Codes greater than 600 are truncated to 600, to keep the metrics cardinality bounded."


class AdmissionWebhookMetrics:
    """How webhooks answer, by name."""

    def __init__(self, registry: Registry) -> None:
        self._duration: Histogram = registry.histogram(
            "apiserver_admission_webhook_admission_duration_seconds",
            "Admission webhook latency histogram in seconds, identified by name and broken out for"
            " each operation and API resource and type (validate or admit).",
            (*_ASKED, "rejected"),
            buckets=_BUCKETS,
        )
        self._rejections: Counter = registry.counter(
            "apiserver_admission_webhook_rejection_count",
            "Admission webhook rejection count, identified by name and broken out for each"
            " admission type (validating or admit) and operation, with an error type and the"
            f" rejection code. {_TRUNCATED}",
            (*_ASKED, "error_type", "rejection_code"),
        )
        self._fail_open: Counter = registry.counter(
            "apiserver_admission_webhook_fail_open_count",
            "Admission webhook fail open count, identified by name and broken out for each"
            " admission type (validating or mutating).",
            ("name", "type"),
        )
        self._requests: Counter = registry.counter(
            "apiserver_admission_webhook_request_total",
            "Admission webhook request total, identified by name and broken out for each admission"
            f" type (validating or mutating) and operation. {_TRUNCATED}",
            (*_ASKED, "code", "rejected"),
        )

    def answered(self, hook: Hook, operation: str, seconds: float, code: int = 200) -> None:
        """The webhook let a request pass, or failed and did not count."""
        self._count(hook, operation, seconds, code, "false")
        if code != 200:
            self._fail_open.labels(hook.name, hook.step).inc()

    def rejected(
        self, hook: Hook, operation: str, seconds: float, code: int, *, failed: bool
    ) -> None:
        """The webhook refused a request, or failed and that counts as a refusal."""
        self._count(hook, operation, seconds, code, "true")
        error = "calling_webhook_error" if failed else "no_error"
        labels = (hook.name, hook.step, operation, error, str(min(code, HIGHEST_CODE)))
        self._rejections.labels(*labels).inc()

    def _count(self, hook: Hook, operation: str, seconds: float, code: int, rejected: str) -> None:
        asked = (hook.name, hook.step, operation)
        self._duration.labels(*asked, rejected).observe(seconds)
        self._requests.labels(*asked, str(min(code, HIGHEST_CODE)), rejected).inc()
