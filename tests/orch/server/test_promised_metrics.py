"""Every metric name that the specification promises of an API server: on its page, or explained."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from orch.wire import metric_catalogue as catalogue
from orch.wire.metric_catalogue import Entry
from tests.orch.server.customresources.widgets import GROUP, define, definition, version
from tests.orch.server.harness import NODES, PODS, Api, pod

PAGE = Path(__file__).parents[3] / "docs" / "metrics.md"
PROMISED = [
    entry
    for entry in catalogue.entries()
    if entry.tier != "ALPHA" and entry.owner in (catalogue.APISERVER, catalogue.EVERY)
]
# They count what nobody does here: ask webhooks, reload a file of authorizers, refuse for seats.
WITHOUT_SERIES = {
    "apiserver_admission_webhook_admission_duration_seconds",
    "apiserver_authorization_config_controller_automatic_reload_last_timestamp_seconds",
    "apiserver_authorization_config_controller_automatic_reloads_total",
    "apiserver_flowcontrol_rejected_requests_total",
}


async def test_the_page_has_what_is_promised_and_counts_it(api: Api) -> None:
    old = version("v1beta1", storage=False, deprecated=True)
    await define(api, definition("widgets", version(), old))
    for path in (PODS, NODES, "/readyz", f"/apis/{GROUP}/v1beta1/namespaces/default/widgets"):
        assert (await api.call("GET", path)).status == 200
    assert (await api.call("POST", PODS, pod("p"))).status == 201
    async with api.session("admin").get(api.url(f"{PODS}?watch=1")) as watch:
        assert watch.status == 200
        pages = [(await api.call("GET", path)).text for path in ("/metrics", "/metrics/slis")]
    declared = {
        name for page in pages for name in re.findall(r"^# TYPE (\S+) ", page, re.MULTILINE)
    }
    expected = {entry.name for entry in PROMISED if entry.served}
    assert expected <= declared
    assert declared.isdisjoint(entry.name for entry in PROMISED if not entry.served)
    series = {
        re.sub(r"_(bucket|sum|count)$", "", name)
        for page in pages
        for name in re.findall(r"^(\w+)(?:\{.*\})? \S+$", page, re.MULTILINE)
    }
    assert expected - WITHOUT_SERIES <= series


@pytest.mark.parametrize(
    "entry", [entry for entry in catalogue.entries() if entry.reason], ids=lambda entry: entry.name
)
def test_what_is_not_served_is_explained(entry: Entry) -> None:
    assert f"\n- `{entry.name}` ({entry.tier}): {entry.reason}.\n" in PAGE.read_text()


def test_nothing_that_is_served_is_explained_away() -> None:
    explained = re.findall(r"^- `(\S+)` \(", PAGE.read_text(), re.MULTILINE)
    assert explained
    assert set(explained) == {entry.name for entry in catalogue.entries() if entry.reason}


async def test_requests_of_a_deprecated_version_warn_and_are_counted(api: Api) -> None:
    said = "use v1 instead"
    old = version("v1beta1", storage=False, deprecated=True, deprecationWarning=said)
    older = version("v1alpha1", storage=False, deprecated=True)
    await define(api, definition("widgets", version(), old, older))
    place = f"/apis/{GROUP}/{{}}/namespaces/default/widgets"
    listed = await api.call("GET", place.format("v1beta1"))
    assert listed.headers["Warning"] == f'299 - "{said}"'
    gone = await api.call("GET", place.format("v1alpha1") + "/none")
    assert gone.headers["Warning"] == f'299 - "{GROUP}/v1alpha1 Widget is deprecated"'
    assert "Warning" not in (await api.call("GET", place.format("v1"))).headers
    refused = await api.call("GET", place.format("v1beta1") + "/x", user="stranger")
    assert refused.status == 403
    watched = f"{place.format('v1beta1')}?watch=1"
    async with api.session("admin").get(api.url(watched)) as watch:
        assert watch.headers["Warning"] == f'299 - "{said}"'
    page = (await api.call("GET", "/metrics")).text
    found = re.findall(r"^apiserver_requested_deprecated_apis(\{.*\}) 1\.0$", page, re.MULTILINE)
    assert sorted(found) == [
        f'{{group="{GROUP}",removed_release="",resource="widgets",subresource="",version="{v}"}}'
        for v in ("v1alpha1", "v1beta1")
    ]
