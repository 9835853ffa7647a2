"""The effective configuration as text is a configuration again, and tells where it came from."""

import json
from pathlib import Path
from typing import Any

from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from nodeagent.config import show
from nodeagent.config.layers import FlagValue, Layers, read_layers
from nodeagent.config.load import effective, load_config
from nodeagent.config.origin import leaves
from orch.component.yaml_file import Document, parse_yaml

HEAD = "apiVersion: nodeagent.config.orch.io/v1beta1\nkind: NodeAgentConfiguration\n"


def test_each_leaf_has_its_origin_in_a_comment(tmp_path: Path) -> None:
    main = tmp_path / "main.yaml"
    main.write_text(HEAD + "logging:\n  level: debug\n")
    layers = read_layers(str(main), None, (FlagValue("--port", ("port",), 99),))
    text = show.as_yaml(_leaves(layers), origins=True)
    lines = {line.split(":")[0].strip(): line for line in text.splitlines()}
    assert lines["level"].split("  # ") == [f"{'  level: debug':<44}", f"{main}:4"]
    assert lines["port"].endswith("# flag --port")
    assert lines["maxPods"].endswith("# default")
    assert lines["logging"] == "logging:"


def test_origins_as_json_name_kind_source_and_line(tmp_path: Path) -> None:
    main = tmp_path / "main.yaml"
    main.write_text(HEAD + "port: 99\n")
    records = json.loads(show.origins_as_json(_leaves(read_layers(str(main), None))))
    by_field = {record["field"]: record for record in records}
    assert by_field["port"] == {
        "field": "port",
        "path": ["port"],
        "value": 99,
        "origin": {"kind": "file", "source": str(main), "line": 3},
    }
    assert by_field["evictionHard.nodefs.available"]["path"] == ["evictionHard", "nodefs.available"]
    assert by_field["maxPods"]["origin"] == {"kind": "default"}


def _leaves(layers: Layers) -> Any:
    return leaves(effective(layers).model_dump(mode="json"), layers)


def test_an_origin_cannot_end_its_comment(tmp_path: Path) -> None:
    path = tmp_path / "a\nport: 1\n.yaml"
    path.write_text(HEAD)
    text = show.as_yaml(_leaves(read_layers(str(path), None)), origins=True)
    assert parse_yaml(text, source="").value["port"] == 10250


texts = st.text(max_size=12)
words = st.from_regex(r"[A-Za-z0-9]([A-Za-z0-9._-]{0,8}[A-Za-z0-9])?", fullmatch=True)


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@example({"registerWithTaints": [{"key": "1e3", "value": "12E-3", "effect": "NoSchedule"}]})
@given(
    st.fixed_dictionaries(
        {},
        optional={
            "staticPodPath": texts.map(lambda text: f"/{text}"),
            "healthzBindAddress": st.ip_addresses().map(str),
            "maxPods": st.integers(1, 10**9),
            "runtimeRequestTimeout": st.integers(1, 10**7).map(lambda ms: f"{ms}ms"),
            "systemReserved": st.dictionaries(st.sampled_from(["cpu", "memory"]), st.just("1")),
            "registerWithTaints": st.lists(
                st.fixed_dictionaries(
                    {"key": words, "value": words, "effect": st.just("NoSchedule")}
                ),
                max_size=2,
                unique_by=lambda taint: taint["key"],
            ),
            "featureGates": st.dictionaries(texts, st.booleans(), max_size=3),
            "seccompDefault": st.booleans(),
        },
    )
)
def test_the_output_loads_as_the_same_configuration(tmp_path: Path, record: Any) -> None:
    layers = Layers(Document("main", record), (), ())
    found = leaves(effective(layers).model_dump(mode="json"), layers)
    for text in (show.as_yaml(found, origins=True), show.as_json(_nested(found))):
        path = tmp_path / "shown.yaml"
        path.write_text(text)
        assert load_config(str(path), None) == effective(layers)


def _nested(found: Any) -> Any:
    record: dict[str, Any] = {}
    for leaf in found:
        place = record
        for part in leaf.path[:-1]:
            place = place.setdefault(part, {})
        place[leaf.path[-1]] = leaf.value
    return record
