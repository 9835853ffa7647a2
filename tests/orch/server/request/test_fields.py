from __future__ import annotations

import time
from collections.abc import Callable

import pytest

from orch.server.request import fields
from orch.server.request.fields import KINDS
from orch.wire.records.kinds import RESOURCES
from tests import scaling


@pytest.mark.parametrize(
    ("kind", "document", "paths"),
    [
        ("Pod", {"kind": "Pod", "spec": {"containers": [{"name": "a", "image": "b"}]}}, []),
        ("Pod", {"sepc": {}}, ["sepc"]),
        ("Pod", {"metadata": {"lables": {}}}, ["metadata.lables"]),
        ("Pod", {"metadata": {"labels": {"anything": "goes"}}}, []),
        (
            "Pod",
            {"spec": {"containers": [{"image": "a"}, {"imag": "b"}], "initContainers": [{"x": 1}]}},
            ["spec.containers[1].imag", "spec.initContainers[0].x"],
        ),
        ("Pod", {"spec": {"schedulingGroup": {"not": "looked", "into": {}}}}, []),
        ("Pod", {"spec": {"containers": "not a list"}}, []),
        (
            "Pod",
            {
                "spec": {
                    "containers": [{"livenessProbe": {"httpGet": {"prot": 1}, "grpc": {"x": 1}}}]
                }
            },
            [f"spec.containers[0].livenessProbe.{path}" for path in ("httpGet.prot", "grpc.x")],
        ),
        (
            "Pod",
            {"spec": {"volumes": [{"name": "v", "csi": {"x": 1}, "hostpath": {}}]}},
            ["spec.volumes[0].hostpath"],
        ),
        ("Pod", {"status": {"not": "looked into"}}, []),
        ("ServiceAccount", {"secrets": [{"nam": "x"}]}, ["secrets[0].nam"]),
        ("Lease", {"spec": {"holder": "n1"}}, ["spec.holder"]),
        ("Node", {"spec": {"taints": [{"key": "a", "efect": "x"}]}}, ["spec.taints[0].efect"]),
        ("Event", {"involvedObject": {"nam": "x"}}, ["involvedObject.nam"]),
        ("Widget", {"anything": {}}, []),
    ],
)
def test_unknown_fields_are_named_by_their_path(kind, document, paths) -> None:
    assert fields.unknown_fields(kind, document) == [f'unknown field "{p}"' for p in paths]


@pytest.mark.parametrize(
    ("body", "names"),
    [
        (b'{"a":1,"b":{"a":2}}', []),
        (b'{"a":1,"a":2}', ["a"]),
        (b'{"x":[{"b":1,"b":1},{"b":1,"b":1}],"c":1,"c":2,"c":3}', ["x[0].b", "x[1].b", "c"]),
        (b'{"data":{"a":"1","a":"2"},"data":{}}', ["data.a", "data"]),
    ],
)
def test_duplicate_fields_are_named_once(body, names) -> None:
    assert fields.duplicate_fields(body) == [f'duplicate field "{n}"' for n in names]


def test_reports_are_bounded() -> None:
    assert len(fields.unknown_fields("Pod", {str(n): 1 for n in range(1000)})) == 100


@pytest.mark.slow
def test_many_duplicates_are_counted_soon() -> None:
    body = b"{" + b",".join(b'"%d":1' % (number // 2) for number in range(200_000)) + b"}"
    started_s = time.process_time()
    assert len(fields.duplicate_fields(body)) == 100
    assert time.process_time() - started_s < 5


@pytest.mark.parametrize("resource", RESOURCES, ids=lambda r: r.kind)
def test_the_lists_contain_every_field_of_our_own_records(resource) -> None:
    def check(model, known, path) -> None:
        names = {name: field.alias or name for name, field in model.model_fields.items()}
        assert set(names.values()) <= set(known), path
        for name, field in model.model_fields.items():
            below = known[names[name]]
            inner = [a for a in flatten(field.annotation) if hasattr(a, "model_fields")]
            if below is not None and inner:
                check(inner[0], below, f"{path}.{name}")

    def flatten(annotation):
        args = getattr(annotation, "__args__", ())
        return [annotation, *(inner for arg in args for inner in flatten(arg))]

    check(resource.model, KINDS[fields.name_of(resource)], resource.kind)


@pytest.mark.parametrize(
    ("spec", "unknown"),
    [
        ({"renewTime": "x"}, []),
        ({"strategy": None, "new": 1}, ['unknown field "spec.new"']),
        ("not even an object", []),
    ],
)
def test_the_quick_look_finds_what_the_one_for_paths_does(spec: object, unknown: list[str]) -> None:
    assert fields.unknown_fields("Lease", {"metadata": {"name": "a"}, "spec": spec}) == unknown
    listed = {"spec": {"containers": [{"name": "a"}, {"name": "b", "imagee": "c"}]}}
    assert fields.unknown_fields("Pod", listed) == ['unknown field "spec.containers[1].imagee"']


@pytest.mark.slow
def test_fields_below_long_names_are_told_in_short_and_quickly() -> None:
    body = b'{"%b":{%b"a":1}}' % (b"x" * 1_000_000, b'"a":1,' * 15_000)

    def telling(count: int) -> Callable[[], object]:
        text = b'{"%b":{%b"a":1}}' % (b"x" * 100 * count, b'"a":1,' * count)
        return lambda: fields.duplicate_fields(text)

    assert fields.duplicate_fields(body) == [f'duplicate field "{"x" * 253}.a"']
    assert scaling.growth(telling, 2_000) < scaling.LINEAR


def test_an_unknown_field_with_a_long_name_is_told_in_short() -> None:
    (text,) = fields.unknown_fields("Pod", {"spec": {"x" * 100_000: 1}})
    assert text.startswith('unknown field "spec.xxx')
    assert len(text) < 1_100
