from __future__ import annotations

import tracemalloc

import pytest

from orch.server.request.media import (
    Form,
    Media,
    Representation,
    negotiate,
    parse_accept,
    parse_media,
)
from orch.wire.errors import ApiError

TABLE = "application/json;as=Table;v=v1;g=meta.k8s.io"


@pytest.mark.parametrize(
    ("text", "media"),
    [
        ("application/json", Media("application/json")),
        ("Application/JSON; charset=utf-8", Media("application/json", {"charset": "utf-8"})),
        ('a/b;x="y z";q=0.5', Media("a/b", {"x": "y z"}, 0.5)),
        ("a/b;q=high", Media("a/b", {}, 0.0)),
        ("", Media("")),
    ],
)
def test_a_media_type_has_parameters_and_a_quality(text: str, media: Media) -> None:
    assert parse_media(text) == media


def test_entries_are_ordered_by_quality_then_as_written() -> None:
    order = [entry.type for entry in parse_accept("a/a;q=0.5, b/b, c/c;q=0, d/d;q=0.9, e/e")]
    assert order == ["b/b", "e/e", "d/d", "a/a"]


@pytest.mark.parametrize(
    ("accept", "form", "version"),
    [  # what kubectl 1.27-1.33 sends, observed
        ("", Form.OBJECT, "v1"),
        ("*/*", Form.OBJECT, "v1"),
        ("application/json", Form.OBJECT, "v1"),
        ("application/json, */*", Form.OBJECT, "v1"),
        ("application/vnd.kubernetes.protobuf,application/json", Form.OBJECT, "v1"),
        ("application/vnd.kubernetes.protobuf, */*", Form.OBJECT, "v1"),
        (f"{TABLE},application/json", Form.TABLE, "v1"),
        (
            "application/json;as=Table;v=v1beta1;g=meta.k8s.io,application/json",
            Form.TABLE,
            "v1beta1",
        ),
        ("application/json;as=Table;v=v9;g=meta.k8s.io,application/json", Form.OBJECT, "v1"),
        ("application/json;as=Chair;v=v1;g=meta.k8s.io,application/json", Form.OBJECT, "v1"),
        ("application/json;as=Table;v=v1;g=other.io,application/json", Form.OBJECT, "v1"),
        (
            "application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1",
            Form.PARTIAL_LIST,
            "v1",
        ),
        (f"application/json;q=0.5,{TABLE}", Form.TABLE, "v1"),
        ("application/json;charset=utf-8", Form.OBJECT, "v1"),
    ],
)
def test_the_first_form_the_server_can_write_is_chosen(accept, form, version) -> None:
    assert negotiate(accept) == Representation(form, version)


@pytest.mark.parametrize(
    "accept",
    [
        "application/xml",
        "application/vnd.kubernetes.protobuf",
        "application/json;as=Chair;v=v1;g=meta.k8s.io",
        "text/html;q=0.9",
        "*/*;q=0",
    ],
)
def test_what_cannot_be_written_is_not_acceptable(accept: str) -> None:
    with pytest.raises(ApiError) as caught:
        negotiate(accept)
    assert (caught.value.code, caught.value.reason) == (406, "NotAcceptable")
    assert "application/json" in caught.value.message


def test_the_content_type_says_which_form_it_is() -> None:
    assert negotiate("application/json").content_type == "application/json"
    assert negotiate("application/yaml,*/*;q=0.1").content_type == "application/yaml"
    yaml_table = negotiate("application/yaml;as=Table;v=v1;g=meta.k8s.io").content_type
    assert yaml_table == "application/yaml;as=Table;g=meta.k8s.io;v=v1"
    assert negotiate(TABLE).content_type == "application/json;as=Table;g=meta.k8s.io;v=v1"


@pytest.mark.slow
def test_long_headers_are_not_remembered() -> None:
    """Strangers send them; 256 of many parameters each took 31 MiB."""
    tracemalloc.start()
    try:
        for number in range(256):
            parse_media("a/b" + "".join(f";{number}x{name}" for name in range(1_000)))
        kept, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert kept < 1_000_000, kept
