"""The metrics that each program's page has about the program itself."""

from orch.component.diagnostics.framework_metrics import FrameworkMetrics
from orch.component.diagnostics.metrics import Registry
from orch.component.flags.features import Features
from orch.component.flags.stability import parse_release


def page(**gates: bool) -> str:
    registry = Registry()
    features = Features(gates, parse_release("1.34"))
    registry.register(FrameworkMetrics(features, emulated=parse_release("1.34")))
    return registry.render("")[0].decode()


def test_features_have_name_stage_and_state() -> None:
    text = page(NodeAgentPSI=False)
    assert "# HELP orch_feature_enabled [BETA] " in text
    assert 'orch_feature_enabled{name="NodeAgentPSI",stage="BETA"} 0.0' in text
    assert 'orch_feature_enabled{name="ComponentSLIs",stage=""} 1.0' in text
    assert 'orch_feature_enabled{name="ComponentFlagz",stage="ALPHA"} 0.0' in text
    assert "NodeDeclaredFeatures" not in text  # 1.34 did not have it


def test_build_and_versions_are_exposed() -> None:
    text = page()
    assert "# HELP orch_build_info [ALPHA] " in text
    assert 'major="1",minor="35"' in text
    labels = 'binary="1.35",component="orch",emulation="1.34",min_compat="1.33"'
    assert f"version_info{{{labels}}} 1.0" in text


def test_dropped_log_lines_are_counted() -> None:
    assert "orch_log_lines_dropped_total 0.0" in page()
