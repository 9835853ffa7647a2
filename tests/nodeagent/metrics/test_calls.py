"""The runtime's calls on the metrics page; names and buckets are the reference agent's."""

import pytest

from nodeagent.metrics.calls import RuntimeOperations, operation_type
from orch.component.diagnostics.metrics import Registry


def page(operations: RuntimeOperations) -> list[str]:
    registry = Registry()
    registry.register(operations)
    return registry.render("")[0].decode().splitlines()


@pytest.mark.parametrize(
    ("operation", "expected"),
    [
        ("Version", "version"),
        ("RunPodSandbox", "run_podsandbox"),
        ("PodSandboxStatus", "podsandbox_status"),
        ("ListPodSandboxStats", "list_podsandbox_stats"),
        ("CheckpointContainer", "checkpoint_container"),
        ("UpdateContainerResources", "update_container"),
        ("ExecSync", "exec_sync"),
        ("ImageFsInfo", "image_fs_info"),
        ("Resume", "resume_container"),
    ],
)
def test_operations_have_the_reference_s_names(operation: str, expected: str) -> None:
    assert operation_type(operation) == expected


def test_calls_failures_and_durations_are_counted_by_operation() -> None:
    operations = RuntimeOperations()
    operations.observe("CheckpointContainer", 0.2, False)
    operations.observe("CheckpointContainer", 5000.0, True)
    operations.observe("Version", 0.005, False)

    lines = page(operations)

    prefix, label = "nodeagent_runtime_operations", 'operation_type="checkpoint_container"'
    assert f"{prefix}_total{{{label}}} 2.0" in lines
    assert f"{prefix}_errors_total{{{label}}} 1.0" in lines
    assert f'{prefix}_duration_seconds_bucket{{le="0.195312",{label}}} 0.0' in lines
    assert f'{prefix}_duration_seconds_bucket{{le="0.488281",{label}}} 1.0' in lines
    assert f'{prefix}_duration_seconds_bucket{{le="+Inf",{label}}} 2.0' in lines
    assert f"{prefix}_duration_seconds_count{{{label}}} 2.0" in lines
    assert f"{prefix}_duration_seconds_sum{{{label}}} 5000.2" in lines
    version = 'operation_type="version"'
    assert f'{prefix}_duration_seconds_bucket{{le="0.005",{version}}} 1.0' in lines
    assert not any(line.startswith(f"{prefix}_errors_total{{{version}") for line in lines)


def test_a_page_without_calls_still_explains_the_metrics() -> None:
    lines = page(RuntimeOperations())

    assert any(
        line.startswith("# HELP nodeagent_runtime_operations_total [ALPHA]") for line in lines
    )
