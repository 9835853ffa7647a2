"""The fields that a reload may change, and the name of a configuration."""

from __future__ import annotations

from typing import Any

import pytest

from nodeagent.config.current import RELOADABLE, CurrentConfig, differences, digest_of
from nodeagent.config.types import NodeAgentConfiguration


def config(**fields: Any) -> NodeAgentConfiguration:
    return NodeAgentConfiguration.model_validate(fields)


CHANGES = [  # fields, what is taken, what waits
    ({}, [], []),
    ({"logging": {"level": "debug"}}, [("logging", "level")], []),
    ({"housekeepingInterval": "20s"}, [("housekeepingInterval",)], []),
    (
        {"authorization": {"webhook": {"cacheAuthorizedTTL": "1m"}, "mode": "AlwaysAllow"}},
        [("authorization", "webhook", "cacheAuthorizedTTL")],
        [("authorization", "mode")],
    ),
    ({"port": 10251, "staticPodURLHeader": {"A": ["s"]}}, [], [("staticPodURLHeader",), ("port",)]),
    ({"featureGates": {"NodeAgentPSI": False}}, [], [("featureGates",)]),
]


@pytest.mark.parametrize(("fields", "taken", "waiting"), CHANGES)
def test_reloadable_fields_are_applied_and_others_need_a_restart(
    fields: dict[str, Any], taken: list[Any], waiting: list[Any]
) -> None:
    current = CurrentConfig(config())
    assert current.update(config(**fields)) == (taken, waiting)
    in_force = list(differences(config(), current.value))
    assert in_force == taken


def test_a_field_that_needs_a_restart_needs_it_after_every_reload() -> None:
    current = CurrentConfig(config())
    wanted = config(port=10251)
    assert current.update(wanted) == current.update(wanted) == ([], [("port",)])


def test_every_reloadable_field_exists() -> None:
    for path in RELOADABLE:
        record: Any = config()
        for name in path:
            record = getattr(record, name)


def test_equal_configurations_have_one_digest_and_a_secret_is_not_in_it() -> None:
    assert digest_of(config()) == digest_of(config(port=10250))
    assert digest_of(config()) != digest_of(config(port=10251))
    one, other = ({"staticPodURLHeader": {"A": [secret]}} for secret in ("x", "y"))
    assert digest_of(config(**one)) == digest_of(config(**other))
    assert len(CurrentConfig(config()).digest) == 12
