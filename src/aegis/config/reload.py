"""The policy in force, and replacing it: atomically, recorded first, and only by one that compiles.

On any error the old configuration stays in force, and the error says so. The sections `store` and
`durability` take effect at the next start.
"""

from __future__ import annotations

import logging
import os
import tempfile
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from threading import Event, Lock, Thread
from typing import Final, Literal

from msgspec import Struct

from aegis.config.compile import Policy, compile_policy
from aegis.config.config import Config, check_version, parse_config
from aegis.config.trusted import check_folder, read_trusted, rule_files
from aegis.errors import AegisError, ConfigError, InvalidCall

# Noticing that the configuration file, or a file that it draws in, changed: by asking for their status.

DEFAULT_SECONDS: Final = 1.0
_log = logging.getLogger("aegis.server.reload")

_Status = tuple[int, int, int, int, int, int]
_Print = tuple[_Status, tuple[tuple[str, _Status | None], ...]] | None


class FileWatch:
    """Calls `changed` once the file was changed and has then stayed the same for one interval.

    A file that is gone is not a change: the configuration in force stays. `drawn_in` says which other
    files belong to it; one of them that comes or goes is a change. `changed` runs in the thread of the
    watch and must not raise.
    """

    def __init__(
        self,
        path: Path,
        changed: Callable[[], None],
        *,
        drawn_in: Callable[[], Iterable[Path]] = tuple,
        seconds: float = DEFAULT_SECONDS,
    ):
        self._path = path
        self._drawn_in = drawn_in
        self._changed = changed
        self._seconds = seconds
        self._seen = self._print()
        self._pending: _Print = self._seen
        self._stop = Event()
        self._thread = Thread(target=self._run, name="aegis-config-watch", daemon=True)

    def start(self) -> None:
        """Begin to watch."""
        self._thread.start()

    def stop(self) -> None:
        """End watching; returns when `changed` is no longer running."""
        self._stop.set()
        if self._thread.is_alive():
            self._thread.join()

    def look(self) -> bool:
        """One look at the file; whether `changed` was called."""
        now = self._print()
        settled = now == self._pending
        self._pending = now
        # A file that is still being written is read when it has come to rest.
        if now is None or now == self._seen or not settled:
            return False
        self._seen = now
        self._changed()
        return True

    def _run(self) -> None:
        while not self._stop.wait(self._seconds):
            self.look()

    def _print(self) -> _Print:
        status = _status(self._path)
        return None if status is None else (status, tuple((str(path), _status(path)) for path in self._drawn_in()))


def _status(path: Path) -> _Status | None:
    try:
        status = path.stat()
    except OSError:
        return None
    # Who may write a file decides whether it is taken, so giving it the right mode is a change as well.
    return status.st_dev, status.st_ino, status.st_mtime_ns, status.st_size, status.st_mode, status.st_uid


Trigger = Literal["file", "signal", "api"]
MAX_PROTECTED: Final = 1_000  # each is looked for in every call


class Change(Struct, frozen=True, kw_only=True):
    """A configuration that is about to replace another; `by` is the principal, or empty for the file."""

    trigger: Trigger
    by: str
    before: str
    after: str


Record = Callable[[Change], None]


class InForce(Struct, frozen=True, kw_only=True):
    """A configuration, the text that it was read from where there is one, and its policy; replaced as one."""

    config: Config
    policy: Policy
    text: str | None = None


class PolicyHolder:
    """Holds the policy in force. `current` is one attribute read, so that a call sees one policy whole.

    `record` is called with every accepted change before it is in force; where it raises, nothing
    changes. `tell` hears of everything that is in force once it is, and whoever changed it waits until it returns.
    `protected` are the paths of this deployment that no call may name. `path` is the file that `reload` reads and
    `replace` writes; without one, changes live as long as the process. `current` is the policy in force.
    """

    current: Policy

    def __init__(
        self,
        config: Config,
        *,
        path: Path | None = None,
        record: Record | None = None,
        scanner_folders: Sequence[Path] = (),
        cache: Path | None = None,
        protected: Sequence[Path] = (),
        text: str | None = None,
    ):
        self.tell: Callable[[str | None, tuple[Path, ...]], object] | None = None
        self._folders = tuple(scanner_folders)
        self._cache = cache
        self._protected = tuple(protected)
        self._path = path
        self._record = record
        self._checks: list[Callable[[Config], object]] = []
        self._lock = Lock()
        self._put(InForce(config=config, policy=self._compile(config, None), text=text))

    @property
    def config(self) -> Config:
        """The configuration in force."""
        return self._in_force.config

    @property
    def in_force(self) -> tuple[str | None, tuple[Path, ...]]:
        """The text in force (`None` for the packaged profile alone), and the paths that no call may name."""
        return self._in_force.text, self._protected

    @property
    def path(self) -> Path | None:
        """The file that the configuration came from, if it came from one."""
        return self._path

    def drawn_in(self) -> list[Path]:
        """The other files of the configuration in force: an operator's own rules, as they are now."""
        return rule_files(self._in_force.config)

    def on_change(self, record: Record) -> None:
        """Have every later change recorded by `record` before it is in force."""
        self._record = record

    def also(self, check: Callable[[Config], object]) -> None:
        """Have every later configuration checked by `check` too, which raises `ConfigError` where it objects."""
        self._checks.append(check)

    def protect(self, paths: Sequence[Path]) -> None:
        """From now on block calls that name one of `paths` too; the configuration stays the one in force."""
        with self._lock:
            fresh = tuple(path for path in paths if path not in self._protected)
            if not fresh:
                return
            before = self._protected
            if len(before) + len(fresh) > MAX_PROTECTED:
                raise InvalidCall("more files would have to be protected than can be looked for")
            self._protected = (*before, *fresh)
            held = self._in_force
            try:
                policy = self._compile(held.config, held.policy)
            except BaseException:
                self._protected = before
                raise
            self._put(InForce(config=held.config, policy=policy, text=held.text))
            self._told()

    def check(self, text: str) -> InForce:
        """What `text` would put in force, compiled; raises `ConfigError` where it would not."""
        config = parse_config(text, file=self._name)
        policy = self._compile(config, self._in_force.policy)
        for check in self._checks:
            check(config)
        return InForce(config=config, policy=policy, text=text)

    def adopt(self, text: str | None, protected: Sequence[Path]) -> None:
        """Put in force what another process of this gateway has recorded and put in force, its `in_force`."""
        with self._lock:
            held = self._in_force
            self._protected = tuple(protected)
            if text is None or text == held.text:
                policy = self._compile(held.config, held.policy)
                self._put(InForce(config=held.config, policy=policy, text=held.text))
            else:
                self._put(self.check(text))

    def _put(self, found: InForce) -> None:
        self._in_force, self.current = found, found.policy

    def replace(self, text: str, *, by: str) -> Change:
        """Put `text` in force for the principal `by`, and into the file where there is one.

        Raises `ConfigError`, `OSError`, or what `record` raises; the old configuration is then in force.
        """
        with self._lock:
            check_version(text, file=self._name)
            candidate = self.check(text)
            if self._path is None:
                return self._accept(candidate, "api", by)
            # A link stays a link: what it leads to is replaced.
            target = self._path.resolve()
            check_folder(target)
            written = _write_beside(target, text)
            try:
                return self._accept(candidate, "api", by, publish=lambda: written.replace(target))
            finally:
                written.unlink(missing_ok=True)

    def reload(self, trigger: Trigger) -> Change | None:
        """Read the file anew and put it in force; `None` where its meaning is the same.

        Raises `ConfigError`, or what `record` raises; the old configuration is then in force.
        """
        if self._path is None:
            return None
        with self._lock:
            candidate = self.check(read_trusted(self._path))
            if candidate.policy.digest == self._in_force.policy.digest:
                return None
            return self._accept(candidate, trigger, "")

    def _compile(self, config: Config, previous: Policy | None) -> Policy:
        return compile_policy(
            config,
            scanner_folders=self._folders,
            previous=previous,
            cache=self._cache,
            protected=self._protected,
        )

    @property
    def _name(self) -> str:
        return "aegis.yaml" if self._path is None else str(self._path)

    def _accept(
        self, candidate: InForce, trigger: Trigger, by: str, publish: Callable[[], object] | None = None
    ) -> Change:
        change = Change(trigger=trigger, by=by, before=self._in_force.policy.digest, after=candidate.policy.digest)
        # (1) On the record, (2) in the file, (3) in force.
        if self._record is not None:
            self._record(change)
        if publish is not None:
            publish()
        self._put(candidate)
        self._told()
        return change

    def _told(self) -> None:
        if self.tell is not None:
            self.tell(*self.in_force)


def _write_beside(path: Path, text: str) -> Path:
    """`text` in a new file of the same folder, durable, readable by its owner alone."""
    handle, name = tempfile.mkstemp(prefix=f".{path.name}.", dir=path.parent)
    with os.fdopen(handle, "w", encoding="utf-8") as stream:
        stream.write(text)
        stream.flush()
        os.fsync(stream.fileno())
    return Path(name)


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
