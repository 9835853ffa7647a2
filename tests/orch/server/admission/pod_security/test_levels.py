"""K:staging/src/k8s.io/pod-security-admission/api/helpers_test.go, and this service's own names."""

from __future__ import annotations

import pytest

from orch.server.admission.pod_security.levels import LATEST, LevelVersion, PodPolicy, policy_of

UP = "pod-security.kubernetes.io/"
OWN = "pod-security.orch.io/"
PRIVILEGED = LevelVersion()
STRICT = LevelVersion("restricted", 20)
LEVEL_TEXT = "must be one of privileged, baseline, restricted"
VERSION_TEXT = 'must be "latest" or "v1.x"'


@pytest.mark.parametrize(
    ("labels", "enforce", "audit", "warn"),
    [
        ({}, "privileged:latest", "privileged:latest", "privileged:latest"),
        ({"enforce": "baseline"}, "baseline:latest", "privileged:latest", "baseline:latest"),
        (
            {"enforce": "restricted", "enforce-version": "v1.22"},
            "restricted:v1.22", "privileged:latest", "restricted:v1.22",
        ),
        (
            {"enforce": "restricted", "enforce-version": "v1.22", "warn-version": "v1.0"},
            "restricted:v1.22", "privileged:latest", "restricted:v1.0",
        ),
        (
            {"enforce": "restricted", "warn": "baseline"},
            "restricted:latest", "privileged:latest", "baseline:latest",
        ),
        (
            {"audit": "restricted", "audit-version": "v1.999999"},
            "privileged:latest", "restricted:v1.999999", "privileged:latest",
        ),
    ],
)  # fmt: skip
@pytest.mark.parametrize("prefix", [UP, OWN])
def test_labels_choose_the_policy(
    prefix: str, labels: dict[str, str], enforce: str, audit: str, warn: str
) -> None:
    given = {prefix + name: value for name, value in labels.items()} | {"app": "web"}
    policy, problems = policy_of(given, PodPolicy())
    assert [str(mode) for mode in policy] == [enforce, audit, warn]
    assert not problems


def test_what_no_label_says_is_as_the_server_does_it() -> None:
    defaults = PodPolicy(STRICT, STRICT, STRICT)
    assert policy_of({}, defaults) == (defaults, ())
    policy, _ = policy_of({f"{UP}enforce": "privileged", f"{UP}warn-version": "latest"}, defaults)
    assert policy == PodPolicy(LevelVersion("privileged", 20), STRICT, LevelVersion("restricted"))


@pytest.mark.parametrize(
    ("name", "value", "text", "enforce", "warn"),
    [
        ("enforce", "strict", LEVEL_TEXT, "restricted:latest", "privileged:latest"),
        ("enforce", "", LEVEL_TEXT, "restricted:latest", "privileged:latest"),
        ("enforce", "Baseline", LEVEL_TEXT, "restricted:latest", "privileged:latest"),
        ("warn", "strict", LEVEL_TEXT, "privileged:latest", "privileged:latest"),
        ("audit", "strict", LEVEL_TEXT, "privileged:latest", "privileged:latest"),
        *(
            ("enforce-version", value, VERSION_TEXT, "privileged:latest", "privileged:latest")
            for value in ("1.22", "v1.01", "v1.", "v2.1", "v1.22.1", "v1.٣", f"v1.{'9' * 19}")
        ),
    ],
)
@pytest.mark.parametrize("prefix", [UP, OWN])
def test_what_cannot_be_read_is_refused_and_enforced_strictly(
    prefix: str, name: str, value: str, text: str, enforce: str, warn: str
) -> None:
    policy, (problem,) = policy_of({prefix + name: value}, PodPolicy())
    assert problem.field == f"metadata.labels[{prefix}{name}]"
    assert problem.message == f'Invalid value: "{value}": {text}'
    assert (str(policy.enforce), str(policy.warn)) == (enforce, warn)


def test_both_names_of_a_label_may_be_used_if_they_agree() -> None:
    both = {f"{UP}enforce": "baseline", f"{OWN}enforce": "baseline"}
    assert policy_of(both, PodPolicy()) == policy_of({f"{UP}enforce": "baseline"}, PodPolicy())
    for theirs, ours in (("privileged", "baseline"), ("baseline", "privileged")):
        labels = {f"{OWN}enforce": ours, f"{UP}enforce": theirs}
        policy, (problem,) = policy_of(labels, PodPolicy())
        assert problem.field == f"metadata.labels[{OWN}enforce]"
        assert problem.message.endswith(f"must be the same as {UP}enforce, which is {theirs}")
        assert policy.enforce == LevelVersion("restricted", LATEST)
