import pytest

from orch.component.process.daemon import SetupError
from orch.lifecycle import options
from orch.lifecycle.decide.records import Settings
from orch.lifecycle.options import Options


def parse(*flags: str) -> Options:
    return options.parse(["--kubeconfig=k", *flags])


def test_the_defaults_are_the_reference_controllers() -> None:
    """apiserver.md §7."""
    parsed = parse()
    assert parsed.settings == Settings(5, 50, 60, 0.1, 0.01, 50, 0.55)
    assert (parsed.leader_elect, parsed.bind_address, parsed.secure_port) == (
        True,
        "127.0.0.1",
        10257,
    )
    assert parsed.warnings == ()


def test_every_time_and_rate_can_be_set() -> None:
    parsed = parse(
        "--node-monitor-period=10s",
        "--node-monitor-grace-period=1m30s",
        "--node-startup-grace-period=2m",
        "--node-eviction-rate=1.5",
        "--secondary-node-eviction-rate=0",
        "--large-cluster-size-threshold=5",
        "--unhealthy-zone-threshold=0.9",
        "--leader-elect=false",
    )
    assert parsed.settings == Settings(10, 90, 120, 1.5, 0, 5, 0.9, max_view_age_s=30)
    assert not parsed.leader_elect


def test_leader_election_may_be_asked_for_without_a_value() -> None:
    assert parse("--leader-elect").leader_elect


def test_a_grace_shorter_than_four_renewals_is_warned_of() -> None:
    assert "may flap" in parse("--node-monitor-grace-period=10s").warnings[0]


@pytest.mark.parametrize(
    ("flags", "text"),
    [
        (["--node-monitor-period=0s"], "--node-monitor-period"),
        (["--node-monitor-grace-period=1s"], "--node-monitor-grace-period"),
        (["--unhealthy-zone-threshold=0"], "--unhealthy-zone-threshold"),
        (["--node-eviction-rate=-1"], "must not be negative"),
        (["--tls-cert-file=c"], "give both"),
        (["--secure-port=65536"], "--secure-port=65536"),
    ],
)
def test_what_cannot_work_is_refused_by_name(flags: list[str], text: str) -> None:
    with pytest.raises(SetupError, match=text):
        parse(*flags)


def test_other_addresses_may_be_bound() -> None:
    assert parse("--bind-address=0.0.0.0").bind_address == "0.0.0.0"


@pytest.mark.parametrize(
    "flag", ["--node-monitor-period=5", "--leader-elect=perhaps", "--nonsense"]
)
def test_wrong_usage_exits_with_two(flag: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        parse(flag)
    assert ended.value.code == 2 and capsys.readouterr().err


def test_pods_are_bound_only_when_asked_for() -> None:
    assert not parse().bind_pods
    assert parse("--bind-pods").bind_pods and parse("--bind-pods=true").bind_pods
    assert parse("--bind-pods").warnings == ()
    (warning,) = parse("--bind-pods", "--feature-gates=PodBinding=false").warnings
    assert warning == "--bind-pods does nothing: the feature gate PodBinding is off"
