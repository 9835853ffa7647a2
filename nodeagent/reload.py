"""SIGHUP: reloads the configuration, applies what can be, logs what needs a restart.

An invalid configuration changes nothing; the log says where it is wrong, and a metric that the last
reload failed. TLS files are checked as well. Supports `Type=notify-reload` units.
"""

from __future__ import annotations

import asyncio
import logging
import signal
from collections.abc import Awaitable, Callable, Iterator

from prometheus_client.core import GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from nodeagent.config.current import CurrentConfig
from nodeagent.config.load import ConfigError, load_config
from nodeagent.config.options import Options
from nodeagent.config.types import NodeAgentConfiguration
from orch.component.flags.features import FeatureError, Features
from orch.component.process import clock
from orch.component.process.clock import Now
from orch.component.process.notify import Notifier
from orch.component.yaml_file import show_path

log = logging.getLogger(__name__)


class Reloader(Collector):
    """`apply` passes on what is not read from `current` each time; `renew` reloads TLS files."""

    def __init__(
        self,
        options: Options,
        current: CurrentConfig,
        notifier: Notifier,
        *,
        apply: Callable[[NodeAgentConfiguration], None],
        renew: Callable[[], Awaitable[None]],
        now: Now = clock.utc_now,
    ) -> None:
        self.successful = True  # the start counts
        self.succeeded_at_s = now().timestamp()
        self._options = options
        self._current = current
        self._notifier = notifier
        self._apply = apply
        self._renew = renew
        self._now = now
        self._requested = asyncio.Event()

    def listen(self) -> None:
        """Handle SIGHUP from now on; before, it ends the process."""
        asyncio.get_running_loop().add_signal_handler(signal.SIGHUP, self._requested.set)

    async def run(self) -> None:
        """Reload after each SIGHUP; signals during a reload cause one more."""
        try:
            while True:
                await self._requested.wait()
                self._requested.clear()
                await self.reload()
        finally:
            asyncio.get_running_loop().remove_signal_handler(signal.SIGHUP)

    async def reload(self) -> bool:
        """Read and apply the configuration; False when it is invalid."""
        self._notifier.reloading()
        try:
            wanted = await asyncio.to_thread(self._read)
        except (ConfigError, FeatureError) as error:
            self.successful = False
            for line in str(error).splitlines():
                log.error("the configuration is not reloaded: %s", line)
        else:
            self._update(wanted)
        await self._renew()
        state = "running" if self.successful else "running; the last reload failed, see the log"
        self._notifier.ready(state)
        return self.successful

    def collect(self) -> Iterator[Metric]:
        yield GaugeMetricFamily(
            "nodeagent_config_last_reload_successful",
            "[ALPHA] 1 when the last reading of the configuration succeeded.",
            value=int(self.successful),
        )
        yield GaugeMetricFamily(
            "nodeagent_config_last_reload_success_timestamp_seconds",
            "[ALPHA] When the configuration was last read with success.",
            value=self.succeeded_at_s,
        )

    def _read(self) -> NodeAgentConfiguration:
        options = self._options
        config = load_config(options.config, options.config_dir, options.overrides)
        Features(config.featureGates, options.emulated_version)
        return config

    def _update(self, wanted: NodeAgentConfiguration) -> None:
        applied, need_restart = self._current.update(wanted)
        if applied:
            self._apply(self._current.value)
        self.successful = True
        self.succeeded_at_s = self._now().timestamp()
        changed = ", ".join(map(show_path, applied)) or "nothing"
        log.info("configuration reloaded (%s): %s changed", self._current.digest, changed)
        if need_restart:
            fields = ", ".join(map(show_path, need_restart))
            log.warning("these need a restart to change: %s", fields)
