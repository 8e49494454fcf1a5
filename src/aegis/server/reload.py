"""When the configuration is read again: on SIGHUP, and when its file or one of its own rules changes.

What does not compile, or cannot be recorded, leaves the old configuration in force, and the log says so.
"""

from __future__ import annotations

import logging
from threading import Thread

from aegis.errors import AegisError, ConfigError
from aegis.pipeline.reload import PolicyHolder, Trigger
from aegis.pipeline.watch import FileWatch

_log = logging.getLogger("aegis.server.reload")


class Reloads:
    """Reloads the policy of one gateway, in threads beside the event loop."""

    def __init__(self, policy: PolicyHolder):
        self._policy = policy
        path = policy.path
        self._watch = None if path is None else FileWatch(path, self._changed, drawn_in=policy.drawn_in)

    def start(self) -> None:
        """Begin to watch the file, where there is one."""
        if self._watch is not None:
            self._watch.start()

    def stop(self) -> None:
        """Watch no more."""
        if self._watch is not None:
            self._watch.stop()

    def _changed(self) -> None:
        self.now("file")

    def soon(self) -> None:
        """Reload for a signal, without holding up whoever was interrupted."""
        Thread(target=self.now, args=("signal",), name="aegis-reload", daemon=True).start()

    def now(self, trigger: Trigger) -> bool:
        """Reload; whether the configuration in force is the one in the file."""
        try:
            change = self._policy.reload(trigger)
        except ConfigError as error:
            problems = [str(problem) for problem in error.problems]
            _log.error(
                "the configuration was refused, the old one stays in force",
                extra={"trigger": trigger, "problems": problems},
            )
            return False
        except AegisError:
            _log.exception("the configuration was not reloaded, the old one stays in force", extra={"trigger": trigger})
            return False
        if change is None:
            _log.info("the configuration is the one in force", extra={"trigger": trigger})
        else:
            _log.info("another configuration is in force", extra={"trigger": trigger, "policy_digest": change.after})
        return True
