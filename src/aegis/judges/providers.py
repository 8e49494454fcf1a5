"""Asking a provider: one request, one answer, and a circuit breaker for each endpoint."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any, Final

from msgspec import Struct

from aegis.core.extensions import load_extension
from aegis.core.judging import JudgeRules, JudgeSelect, JudgeSpec, ModelSpec, Validator
from aegis.core.names import glob_match, normalise_name
from aegis.core.outcome import Effect, Risk
from aegis.errors import ExtensionError, ModelFailed
from aegis.judges.values import Cause, Result, read_answer
from aegis.judges.workspace import Workspace, doors, in_sandbox, limits_of, with_door
from aegis.outbound.client import Egress, EgressPolicy
from aegis.sandbox import Box, Mount
from aegis.wire.client import Message, ModelAnswer, ModelEndpoint, ask

# A judge without a model: a program that reads the payload and gives the result object itself.
#
# It reads the payload from its input and writes one result object to the descriptor that `AEGIS_RESULT_FD` names.
# That descriptor takes the word of this one process: what a child writes there is told apart by the kernel, and
# makes the run fail. What it prints counts for nothing.


class Failed(Exception):
    """The run gave no result that counts."""

    def __init__(self, cause: Cause, detail: str):
        super().__init__(detail)
        self.cause = cause
        self.detail = detail


async def run_command(judge: JudgeSpec, workspace: Workspace, payload: dict[str, Any], seconds: float) -> Result:
    """What the program makes of `payload`; raises `Failed` or `Malformed`."""
    command, mounts = _with_files(judge)
    box = workspace.box(judge)
    box = Box(mounts=(*mounts, *box.mounts), cwd=box.cwd, path=box.path, hidden=box.hidden, network=box.network)
    async with with_door(doors(judge), command, box) as (line, through):
        finished = await in_sandbox(
            line, through, limits_of(judge, seconds), stdin=json.dumps(payload).encode("utf-8"), result=True
        )
    # (1) Somebody else spoke for it.
    if finished.forged:
        raise Failed("forged", "another process than the judge wrote to its result descriptor")
    # (2) It did not end well: what it said before counts for nothing.
    if finished.ended == "timeout":
        raise Failed("timeout", "the judge did not end in time")
    if finished.ended != "exited" or finished.code != 0:
        why = (
            f"it ended with status {finished.code}" if finished.ended == "exited" else f"it was ended: {finished.ended}"
        )
        raise Failed("failed", f"the judge failed: {why}")
    # (3) One object, and nothing else.
    return read_answer(finished.message.decode("utf-8", "replace"))


async def run_extension(judge: JudgeSpec, payload: dict[str, Any]) -> Result:
    """Ask the judge of an installed package, in a thread of its own; raises `Failed` or `Malformed`.

    It belongs to the gateway as a guard does: no sandbox holds it. Its answer is read like that of every other judge.
    """
    try:
        made = load_extension("judge", judge.extension).made(judge.options, needs=("judge",))
        answer = await asyncio.to_thread(made.judge, payload)
        text = json.dumps(answer, allow_nan=False)
    except Exception as error:
        # Its text may hold what the call is about, so a receipt has its name alone.
        why = str(error) if isinstance(error, ExtensionError) else f"the judge failed: {type(error).__name__}"
        raise Failed("failed", why) from error
    return read_answer(text)


def _with_files(judge: JudgeSpec) -> tuple[list[str], list[Mount]]:
    """The command with its files by absolute path, and the mounts that show exactly these files."""
    command: list[str] = []
    mounts: list[Mount] = []
    there = ("/usr", "/bin", *judge.programs)
    for word in judge.command:
        path = Path(judge.folder, word) if judge.folder else Path(word)
        if not path.is_file():
            command.append(word)
            continue
        command.append(str(path))
        if not any(path.is_relative_to(place) for place in there):
            mounts.append(Mount(source=str(path.resolve()), target=str(path)))
    return command, mounts


# Which validators a call is for, and whether its tool may go without any.

# What a tool must not do to go without a judge.
HARMFUL: Final[frozenset[Effect]] = frozenset({"write", "exec", "external_send"})


class About(Struct, frozen=True, kw_only=True):
    """What selectors look at: the tool and what its call would do."""

    tool: str
    server: str | None
    category: str
    effects: frozenset[Effect]
    irreversible: bool
    tier: Risk
    registered: bool
    skip: bool
    unsafe_skip: bool


def selected(validators: Iterable[Validator], about: About) -> list[Validator]:
    """The validators that are about this call, in their order."""
    return [validator for validator in validators if _matches(validator.select, about)]


def skips(about: About) -> bool:
    """Whether the operator left the judges out for this tool, and this call does nothing that forbids it."""
    harmless = not about.irreversible and not about.effects & HARMFUL
    return about.skip and (harmless or about.unsafe_skip)


def _matches(select: JudgeSelect, about: About) -> bool:
    server = "" if about.server is None else normalise_name(about.server)
    return (
        (not select.tools or any(one.matches(about.server, about.tool) for one in select.tools))
        and (not select.servers or any(glob_match(normalise_name(one), server) for one in select.servers))
        and (select.category is None or select.category == about.category)
        and (select.effect is None or select.effect in about.effects)
        and (select.tier is None or about.tier >= select.tier)
        and (select.unregistered is None or select.unregistered is not about.registered)
    )


MAX_ANSWER: Final = 1_048_576  # bytes of one provider's answer


class BreakerOpen(Exception):
    """The provider failed so often that it is not asked for a while."""


class Breaker:
    """Closed, until so many failures in a row; then open for a time; then one trial at a time."""

    def __init__(self) -> None:
        self._failures = 0
        self._until = 0.0

    def check(self, rules: JudgeRules) -> None:
        """Raises `BreakerOpen` where the provider is not to be asked now."""
        if self._failures < rules.breaker_failures:
            return
        now = time.monotonic()
        if now < self._until:
            raise BreakerOpen
        self._until = now + rules.breaker_seconds  # this one is the trial

    def count(self, rules: JudgeRules, *, failed: bool) -> None:
        self._failures = self._failures + 1 if failed else 0
        if failed and self._failures >= rules.breaker_failures:
            self._until = time.monotonic() + rules.breaker_seconds


class JudgeProviders:
    """All providers of one event loop."""

    def __init__(self) -> None:
        self._clients: dict[frozenset[str], Egress] = {}
        self._breakers: dict[str, Breaker] = {}

    async def ask(
        self,
        rules: JudgeRules,
        model: ModelSpec,
        messages: Sequence[Message],
        tools: Sequence[dict[str, Any]],
        seconds: float,
    ) -> ModelAnswer:
        """The model's next message; raises `ModelFailed` or `BreakerOpen`."""
        breaker = self._breakers.setdefault(model.url, Breaker())
        breaker.check(rules)
        try:
            answer = await ask(
                self._client(model), _endpoint(model), messages, tools, seconds=seconds, max_bytes=MAX_ANSWER
            )
        except (ModelFailed, asyncio.CancelledError):  # one that is given up was too slow
            breaker.count(rules, failed=True)
            raise
        breaker.count(rules, failed=False)
        return answer

    def _client(self, model: ModelSpec) -> Egress:
        private = frozenset({_host(model.url)}) if model.private else frozenset[str]()
        if private not in self._clients:
            self._clients[private] = Egress(EgressPolicy(private=private))
        return self._clients[private]

    async def aclose(self) -> None:
        for client in self._clients.values():
            await client.aclose()


def _endpoint(model: ModelSpec) -> ModelEndpoint:
    return ModelEndpoint(
        api=model.api, url=model.url, name=model.name, key=model.key, max_tokens=model.max_tokens, temperature=0
    )


def _host(url: str) -> str:
    """The host and port that the operator wrote into the address of a provider."""
    return url.partition("://")[2].partition("/")[0].lower()
