"""What the doctor says of the interface that has the default route."""

from __future__ import annotations

import pytest

from nodeagent.doctor.examination import check_interfaces
from nodeagent.stats.host.network import LinkFacts


def link(name: str, *, is_default: bool = False, is_up: bool = True) -> LinkFacts:
    return LinkFacts(name, is_default, "", is_up, 1500, "02:00:00:00:00:01")


@pytest.mark.parametrize(
    ("links", "verdict", "text"),
    [
        ([link("lo"), link("eth0", is_default=True)], "ok", "over eth0 (mtu 1500)"),
        ([link("lo")], "note", "no default route"),
        ([link("eth0", is_default=True, is_up=False)], "warn", "eth0 has the default route"),
        (
            [link("eth0", is_default=True, is_up=False), link("eth1", is_default=True)],
            "ok",
            "over eth1",
        ),
    ],
)
def test_the_link_of_the_default_route_is_looked_at(
    links: list[LinkFacts], verdict: str, text: str
) -> None:
    found = check_interfaces(lambda: links)
    assert found.verdict == verdict
    assert text in found.message


def test_a_kernel_that_does_not_answer_is_named() -> None:
    def refuse() -> list[LinkFacts]:
        raise PermissionError(1, "not permitted")

    found = check_interfaces(refuse)
    assert "not permitted" in found.message


def test_this_machine_can_be_asked() -> None:
    assert check_interfaces().check == "network"
