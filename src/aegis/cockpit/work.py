"""Work on the whole log beside requests: replays of recorded calls, erasure of old payloads, drafts of policies."""

from __future__ import annotations

import asyncio
import logging
import shutil
import sys
import tempfile
from collections import Counter
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import timedelta
from pathlib import Path
from typing import Any, Final, Literal

import orjson

from aegis.approvals.retention import Erased, next_old
from aegis.config.compile import Policy
from aegis.config.text import summary_of
from aegis.core.ports import Entry, Search
from aegis.core.times import MICROS, rfc3339, system_clock
from aegis.errors import AegisError, InvalidCall
from aegis.gate.repeat import erase_payload
from aegis.gate.replay import replayed
from aegis.server.drafting import draft_policy
from aegis.server.services import Services

# Work that takes longer than a page: one of a kind at a time, with its progress, and a way to end it.

PAUSE_S: Final = 0.02  # between two steps: decisions come first

State = Literal["never", "running", "done", "cancelled", "failed"]
Step = Callable[[], Awaitable[bool]]

_log = logging.getLogger("aegis.server.cockpit")


@dataclass(frozen=True, kw_only=True, slots=True)
class JobStanding:
    """Where the work stands, who began it and when; `problem` says why it failed."""

    state: State = "never"
    by: str = ""
    began: str = ""
    ended: str = ""
    problem: str = ""


class Job:
    """Runs one piece of work in steps, each of which says whether there is more."""

    def __init__(self) -> None:
        self._task: asyncio.Task[None] | None = None
        self.standing = JobStanding()

    @property
    def running(self) -> bool:
        """Whether work is under way."""
        return self._task is not None and not self._task.done()

    def start(self, by: str, step: Step) -> None:
        """Begin; raises `InvalidCall` (409) while something is under way."""
        if self.running:
            raise InvalidCall(
                "one is under way already", code="conflict", hint="wait for its end, or cancel it", status=409
            )
        self.standing = JobStanding(state="running", by=by, began=rfc3339(system_clock()))
        self._task = asyncio.get_running_loop().create_task(self._run(step))

    def cancel(self) -> None:
        """End what is under way before its next step."""
        if self.running and self._task is not None:
            self._task.cancel()

    async def close(self) -> None:
        """End what is under way, and wait for that."""
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)

    async def _run(self, step: Step) -> None:
        state: State = "failed"
        problem = "it ended unexpectedly; the log of the gateway says more"
        try:
            more = True
            while more:
                more = await step()
                await asyncio.sleep(PAUSE_S)
            state, problem = "done", ""
        except asyncio.CancelledError:
            state, problem = "cancelled", ""
        except InvalidCall as refusal:
            problem = refusal.message
        except AegisError:
            _log.exception("work of the cockpit failed")
        finally:
            self.standing = replace(self.standing, state=state, problem=problem, ended=rfc3339(system_clock()))


# Drafts of policies from plain words, asked for beside requests.


@dataclass(kw_only=True)
class Drafted:
    """What was asked for, and what became of it; `told` is empty until the model answered."""

    wish: str = ""
    told: dict[str, Any] | None = None


class Drafts:
    """The draft of one gateway: one at a time."""

    def __init__(self) -> None:
        self.job = Job()
        self.drafted = Drafted()

    def start(self, services: Services, wish: str, *, by: str) -> None:
        """Begin to draft what `wish` says; raises `InvalidCall` (409) while a draft is under way."""
        drafted = Drafted(wish=wish)

        async def step() -> bool:
            drafted.told = await draft_policy(services, wish, by=by)
            return False

        self.job.start(by, step)
        self.drafted = drafted


# A replay over every recorded call of a period: in steps, with its progress, and bounded in what it keeps.

REPLAY_STEP: Final = 250  # calls decided again at once: bounds how long one step takes from the interpreter
MOST: Final = 100_000  # calls of one replay
KEPT: Final = 200  # changes of one direction that are listed; all of them are counted
GROUPS: Final = 2_000  # counts by tool, agent, was and would be: tools and agents are names that callers choose
REPLAY_DAYS: Final = 365


@dataclass(kw_only=True)
class ReplayFound:
    """What a replay has found so far. `changes` and `counts` are by direction: stricter, looser, other.

    `since` and `until` are the times of the earliest and the newest call that was looked at, and `complete` says that
    no earlier call of the period is left. `summary` counts changes by tool, agent, what was and what would be.
    """

    text: str = ""
    days: int = 0
    replayed: int = 0
    skipped: int = 0
    bounded: bool = False
    complete: bool = False
    since: str | None = None
    until: str | None = None
    summary: list[dict[str, Any]] = field(default_factory=list)
    changes: dict[str, list[dict[str, Any]]] = field(
        default_factory=lambda: {"stricter": [], "looser": [], "other": []}
    )
    counts: Counter[str] = field(default_factory=Counter)

    def take(self, step: dict[str, Any]) -> None:
        """Add what one step found; steps go back in time."""
        self.replayed += step["replayed"]
        self.skipped += step["skipped"]
        self.until = self.until or step["span"]["until"]
        self.since = step["span"]["since"] or self.since
        self.summary = summary_of([*self.summary, *step["summary"]])[:GROUPS]
        for direction, changes in by_direction(step["changed"]).items():
            self.counts[direction] += len(changes)
            self.changes[direction] += changes[: KEPT - len(self.changes[direction])]

    @property
    def done(self) -> int:
        """How many calls were looked at."""
        return self.replayed + self.skipped


class Replays:
    """The replay of one gateway: one at a time."""

    def __init__(self) -> None:
        self.job = Job()
        self.found = ReplayFound()

    def start(self, services: Services, candidate: Policy, *, text: str, days: int, by: str) -> None:
        """Begin over the calls of the last `days`; raises `InvalidCall` (409) while one is under way."""
        found = ReplayFound(text=text, days=days)
        since = services.clock() - int(timedelta(days=days).total_seconds()) * MICROS
        before: list[int | None] = [None]

        async def step() -> bool:
            search = Search(kind="decision", since=since, before=before[0], limit=REPLAY_STEP)
            part = await asyncio.to_thread(replayed, services.gate.parts, services.evaluate, candidate, search)
            found.take(part)
            before[0] = part["last"]
            found.complete = part["replayed"] + part["skipped"] < REPLAY_STEP
            found.bounded = found.done >= MOST and not found.complete
            return not found.complete and not found.bounded

        self.job.start(by, step)
        self.found = found


def by_direction(changed: list[dict[str, Any]]) -> dict[str, list[dict[str, Any]]]:
    """Return changes by what they do: newly refused or held, newly let through, or for another reason."""
    order = {"allow": 0, "sanitize": 1, "require_approval": 2, "block": 3}
    found: dict[str, list[dict[str, Any]]] = {"stricter": [], "looser": [], "other": []}
    for change in changed:
        was, now = order[change["before"]["decision"]], order[change["after"]["decision"]]
        found["stricter" if now > was else "looser" if now < was else "other"].append(change)
    return found


MAX_DAYS: Final = 36_500


class Retention:
    """The erasing of one gateway: one at a time."""

    def __init__(self) -> None:
        self.job = Job()
        self.told = Erased()

    def start(self, services: Services, told: Erased, by: str) -> None:
        """Begin with the payloads that are older than `told.days`; raises `InvalidCall` (409) while it goes on."""
        end = services.clock() - int(timedelta(days=told.days).total_seconds()) * MICROS

        async def step() -> bool:
            entries, more = await asyncio.to_thread(_old, services, told, end)
            for entry in entries:
                try:
                    await services.gate.arecord(erase_payload(entry.receipt_id, principal=by))
                except InvalidCall:  # somebody else erased it meanwhile
                    continue
                told.erased += 1
            return more

        self.job.start(by, step)
        self.told = told


def _old(services: Services, told: Erased, end: int) -> tuple[Sequence[Entry], bool]:
    with services.store.reader() as reader:
        return next_old(reader, told, end=end, now=services.clock())


# Verifying the whole log from the cockpit: what an auditor runs, in a process of its own.
#
# The log's name and key come from this gateway's configuration and key file, not from the log; the checkpoint of
# the last log that verified is kept beside the store, so that a log that was cut or replaced since is found.

KEPT_CHECKPOINT: Final = "verified.checkpoint"
LONGEST_S: Final = 3_600.0
_NICE: Final = ("nice", "-n", "10")  # decisions come first

CheckState = Literal["never", "running", "verified", "broken", "failed"]


@dataclass(frozen=True, kw_only=True, slots=True)
class Verification:
    """The last run: `told` is what the verifier said."""

    state: CheckState = "never"
    by: str = ""
    began: str = ""
    ended: str = ""
    told: Mapping[str, Any] = field(default_factory=dict)


class Verifications:
    """Runs one verification at a time. `config` and `home` are those of the deployment."""

    def __init__(self, *, home: Path, config: Path | None, log: str, keys: Sequence[Mapping[str, Any]]):
        self._home = home
        self._config = config
        self._keys = {"v": 1, "log": log, "keys": [dict(key) for key in keys]}
        self._task: asyncio.Task[None] | None = None
        self.last = Verification()

    def start(self, by: str) -> None:
        """Begin, unless one is under way."""
        if self._task is not None and not self._task.done():
            return
        self.last = Verification(state="running", by=by, began=rfc3339(system_clock()))
        self._task = asyncio.get_running_loop().create_task(self._run())

    async def close(self) -> None:
        """End what is under way."""
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)

    async def _run(self) -> None:
        folder = Path(await asyncio.to_thread(tempfile.mkdtemp, prefix="aegis-verify-"))
        state: CheckState = "failed"
        told: Mapping[str, Any] = {}
        try:
            state, told = await asyncio.wait_for(self._verify(folder), LONGEST_S)
        except TimeoutError:
            told = {"detail": "the verifier did not come to an end in time"}
        finally:
            await asyncio.to_thread(shutil.rmtree, folder, ignore_errors=True)
            self.last = replace(self.last, state=state, told=told, ended=rfc3339(system_clock()))

    async def _verify(self, folder: Path) -> tuple[CheckState, Mapping[str, Any]]:
        out, keys, kept = folder / "export", folder / "keys.json", self._home / KEPT_CHECKPOINT
        await asyncio.to_thread(keys.write_bytes, orjson.dumps(self._keys))
        where = ["--home", str(self._home), *(["--config", str(self._config)] if self._config else [])]
        code, text = await _aegis("log", "export", "--out", str(out), *where)
        if code:
            return "broken", {"detail": "the log could not be exported", "meaning": text[:500]}
        since = ["--since", str(kept)] if await asyncio.to_thread(kept.is_file) else []
        code, text = await _aegis("log", "verify", str(out), "--key", str(keys), "--json", *since)
        told = _parsed(text)
        if code == 0 and told.get("verified") is True:
            await asyncio.to_thread(shutil.copyfile, out / "checkpoint", kept)
            return "verified", told
        return ("broken" if told.get("verified") is False else "failed"), told or {"detail": text[:500]}


async def _aegis(*words: str) -> tuple[int, str]:
    """Return one command as a user types it: its exit code, and what it said."""
    nice = _NICE if shutil.which(_NICE[0]) else ()
    process = await asyncio.create_subprocess_exec(
        *nice,
        sys.executable,
        "-m",
        "aegis.cli",
        *words,
        stdin=asyncio.subprocess.DEVNULL,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )
    try:
        out, err = await process.communicate()
    except asyncio.CancelledError:
        process.kill()
        await process.wait()
        raise
    code = process.returncode or 0
    return code, (out or err).decode(errors="replace")


def _parsed(text: str) -> Mapping[str, Any]:
    try:
        found = orjson.loads(text)
    except ValueError:
        return {}
    return found if isinstance(found, dict) else {}
