from datetime import UTC, timedelta

from orch.component.process import clock


def test_now_is_aware_and_in_utc() -> None:
    now = clock.utc_now()
    assert now.tzinfo is UTC
    assert abs(now.timestamp() * 1e9 - clock.wall_ns()) < timedelta(seconds=5).total_seconds() * 1e9
