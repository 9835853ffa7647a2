import asyncio
import contextlib
import gc
import logging
import os
import re
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Awaitable, Callable

import pytest

from orch.component.process import daemon
from orch.component.process.daemon import LoopEnded, SetupError, Stop


async def forever() -> None:
    await asyncio.Event().wait()


async def fail(error: BaseException) -> None:
    raise error


def test_a_daemon_that_is_asked_to_stop_and_does_exits_with_0(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async def main(stop: Stop) -> None:
        stop.set("enough")
        await stop.wait()

    with caplog.at_level(logging.INFO):
        assert daemon.run_daemon(main, name="x") == 0
    assert caplog.messages == ["stopped: enough"]


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_sets_the_stop_with_its_name(number: signal.Signals) -> None:
    reasons = []

    async def main(stop: Stop) -> None:
        os.kill(os.getpid(), number)
        await stop.wait()
        reasons.append(stop.reason)

    assert daemon.run_daemon(main, name="x") == 0
    assert reasons == [f"received {number.name}"]


def test_the_handlers_of_before_are_put_back() -> None:
    before = signal.getsignal(signal.SIGTERM), signal.getsignal(signal.SIGINT)

    async def main(stop: Stop) -> None:
        assert signal.getsignal(signal.SIGTERM) is not before[0]
        stop.set("done")

    daemon.run_daemon(main, name="x")
    assert (signal.getsignal(signal.SIGTERM), signal.getsignal(signal.SIGINT)) == before


def test_the_first_reason_to_stop_stays() -> None:
    stop = Stop()
    stop.set("first")
    stop.set("second")
    assert stop.reason == "first"


def test_a_main_that_returns_unasked_exits_with_1(caplog: pytest.LogCaptureFixture) -> None:
    async def main(_stop: Stop) -> None:
        pass

    assert daemon.run_daemon(main, name="x") == 1
    assert caplog.messages == ["x ended without being asked to stop"]


def supervising(*loops: Callable[[], Awaitable[None]]) -> Callable[[Stop], Awaitable[None]]:
    async def main(stop: Stop) -> None:
        await daemon.supervise(stop, {f"loop-{n}": loop() for n, loop in enumerate(loops)})

    return main


@pytest.mark.parametrize(
    "main",
    [
        lambda _: fail(SetupError("no such file: /x")),
        supervising(forever, lambda: fail(SetupError("no such file: /x"))),
        lambda _: fail(ExceptionGroup("", [ExceptionGroup("", [SetupError("no such file: /x")])])),
    ],
    ids=["raised", "in a loop", "deep in groups"],
)
def test_a_setup_error_is_one_line_on_stderr_and_nothing_else(
    main: Callable[[Stop], Awaitable[None]],
    capsys: pytest.CaptureFixture[str],
    caplog: pytest.LogCaptureFixture,
) -> None:
    assert daemon.run_daemon(main, name="nodeagent") == 1
    assert capsys.readouterr() == ("", "nodeagent: error: no such file: /x\n")
    assert caplog.records == []


def test_an_unexpected_error_is_logged_with_its_own_traceback(
    caplog: pytest.LogCaptureFixture,
) -> None:
    assert daemon.run_daemon(supervising(forever, lambda: fail(ValueError("bad"))), name="x") == 1
    (record,) = caplog.records
    assert record.getMessage() == "stopping after an unexpected ValueError: bad"
    assert record.exc_info is not None
    assert record.exc_info[0] is ValueError


def test_a_loop_that_returns_brings_the_daemon_down(caplog: pytest.LogCaptureFixture) -> None:
    assert daemon.run_daemon(supervising(forever, lambda: asyncio.sleep(0)), name="x") == 1
    assert caplog.messages == ["stopping: the loop loop-1 ended, which it never should"]
    assert caplog.records[0].exc_info is None


def test_a_main_that_is_cancelled_from_within_exits_with_1() -> None:
    assert daemon.run_daemon(lambda _: fail(asyncio.CancelledError()), name="x") == 1


async def test_supervise_ends_every_loop_at_the_stop() -> None:
    ended = []

    async def loop(name: str) -> None:
        try:
            await forever()
        finally:
            await asyncio.sleep(0)
            ended.append(name)

    stop = Stop()
    asyncio.get_running_loop().call_soon(stop.set, "done")
    await daemon.supervise(stop, {"a": loop("a"), "b": loop("b")})
    assert sorted(ended) == ["a", "b"]


async def test_supervise_names_the_loop_that_ended_and_cancels_the_others() -> None:
    with pytest.raises(ExceptionGroup) as caught:
        await daemon.supervise(Stop(), {"endless": forever(), "short": asyncio.sleep(0)})
    (error,) = caught.value.exceptions
    assert isinstance(error, LoopEnded)
    assert "short" in str(error)


async def test_supervise_names_a_loop_that_was_cancelled_by_what_it_waited_for() -> None:
    async def loop() -> None:
        answer = asyncio.get_running_loop().create_future()
        answer.cancel()
        await answer

    with pytest.raises(ExceptionGroup) as caught:
        await daemon.supervise(Stop(), {"endless": forever(), "asking": loop()})
    (error,) = caught.value.exceptions
    assert isinstance(error, LoopEnded)
    assert "asking" in str(error)


STUCK = """
import asyncio, sys, threading
from orch.component.process import daemon

async def main(stop):
    asyncio.get_running_loop().run_in_executor(None, threading.Event().wait)
    stop.set("done")

daemon.CLEANUP_LIMIT_S = 0.05
sys.exit(daemon.run_daemon(main, name="x"))
"""


def test_a_thread_that_does_not_end_cannot_keep_the_process() -> None:
    done = subprocess.run([sys.executable, "-c", STUCK], capture_output=True, text=True, timeout=60)
    assert done.returncode == 1
    assert done.stderr == "x: tasks or threads did not end within 0.05 s: ending at once\n"


HANGING = """
import signal, sys, time
from orch.component.process import daemon

async def main(stop):
    print("up", flush=True)
    if "blocked" in sys.argv:
        time.sleep(30)
    await stop.wait()
    print("stopping", flush=True)
    time.sleep(30)

sys.exit(daemon.run_daemon(main, name="x"))
"""


@pytest.mark.parametrize("arguments", [[], ["blocked"]])
def test_a_second_signal_ends_the_process_at_once_even_with_a_blocked_loop(
    arguments: list[str],
) -> None:
    with subprocess.Popen(
        [sys.executable, "-c", HANGING, *arguments],
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
    ) as process:  # fmt: skip
        assert process.stdout is not None
        assert process.stderr is not None
        assert process.stdout.readline() == "up\n"
        process.send_signal(signal.SIGTERM)
        process.send_signal(signal.SIGINT)  # the same request: nothing more happens
        if not arguments:
            assert process.stdout.readline() == "stopping\n"
        time.sleep(daemon.SAME_REQUEST_S + 0.1)
        assert process.poll() is None
        while process.poll() is None:  # on a busy machine the first may have been seen just now
            process.send_signal(signal.SIGINT)
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(timeout=0.2)
        line = process.stderr.read()
        assert re.fullmatch(r"received SIG(INT|TERM) again: ending at once\n", line)
        assert process.returncode == 1


def test_a_signal_that_another_thread_gets_wakes_the_loop() -> None:
    def end() -> None:
        time.sleep(0.2)  # the loop waits for its selector by then
        signal.pthread_kill(threading.get_ident(), signal.SIGTERM)

    async def main(stop: Stop) -> None:
        threading.Thread(target=end, daemon=True).start()
        await stop.wait()

    began_s = time.monotonic()
    assert daemon.run_daemon(main, name="x") == 0
    assert time.monotonic() - began_s < 30


def test_freezing_empties_the_collected_generations() -> None:
    threshold = gc.get_threshold()
    try:
        daemon.freeze_gc()
        assert gc.get_freeze_count() > 0
        assert gc.get_threshold() == (5_000, 4, 2_500)
    finally:
        gc.unfreeze()
        gc.set_threshold(*threshold)


def refuse_threads(_thread: threading.Thread) -> None:
    raise RuntimeError("can't start new thread")


def test_blocking_work_still_runs_when_the_machine_is_out_of_threads(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    done: list[int] = []

    async def main(stop: Stop) -> None:
        with monkeypatch.context() as machine:
            machine.setattr(threading.Thread, "start", refuse_threads)
            await asyncio.gather(*(asyncio.to_thread(done.append, n) for n in range(100)))
        stop.set("done")

    assert daemon.run_daemon(main, name="x") == 0
    assert sorted(done) == list(range(100))


def test_a_lack_of_threads_at_the_start_is_reported(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    start, started = threading.Thread.start, []

    def third_fails(thread: threading.Thread) -> None:
        started.append(thread)
        if len(started) == 3:
            refuse_threads(thread)
        start(thread)

    monkeypatch.setattr(threading.Thread, "start", third_fails)
    assert daemon.run_daemon(forever_with, name="x") == 1
    assert "x: error: cannot start " in capsys.readouterr().err


@pytest.mark.parametrize("left", [0, 2, 12])
def test_where_too_few_threads_are_left_for_compiled_libraries_the_start_is_refused(
    left: int, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """They abort the process instead of saying so; this machine has two processors."""
    start, started = threading.Thread.start, []

    def start_while_some_are_left(thread: threading.Thread) -> None:
        if len(started) == left:
            refuse_threads(thread)
        started.append(thread)
        start(thread)

    async def main(stop: Stop) -> None:
        stop.set("done")

    monkeypatch.setattr("os.cpu_count", lambda: 2)
    monkeypatch.setattr(threading.Thread, "start", start_while_some_are_left)
    assert daemon.run_daemon(main, name="x") == 1
    printed = capsys.readouterr().err
    text = "x: error: cannot start 16 threads: the machine or the cgroup has none left (pids.max,"
    assert text in printed


def test_a_crash_of_compiled_code_leaves_a_last_line() -> None:
    code = (
        "import os, signal; from orch.component.process import daemon\n"
        "async def main(stop): os.kill(os.getpid(), signal.SIGSEGV)\n"
        "daemon.run_daemon(main, name='x')"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, timeout=60)
    assert done.returncode == -signal.SIGSEGV
    assert b"Fatal Python error: Segmentation fault" in done.stderr


async def forever_with(_stop: Stop) -> None:
    await forever()
