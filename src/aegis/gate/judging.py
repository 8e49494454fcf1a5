"""Judges inside of a decision: started after the deterministic guards, if these left the question open.

A judge's word is one more report, joined by the maximum. The run goes on on the judges' own loop; a call
whose caller goes away takes its judges with it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Generator
from time import perf_counter_ns
from typing import Any, Final

import orjson
from msgspec.structs import replace

from aegis.audit.writer import Unit
from aegis.core.digest import call_digest
from aegis.core.judging import JudgeSpec
from aegis.core.outcome import Outcome
from aegis.core.receipt import Recorded
from aegis.core.strict_json import parse
from aegis.errors import StoreError
from aegis.facts.gather import executed_places
from aegis.gate.commits import Commits
from aegis.gate.judge_door import Decide, Door, Observe, is_judge
from aegis.gate.judge_ends import Ends, with_ends
from aegis.gate.judge_history import recent_calls, violations
from aegis.gate.judge_memory import DENIED, VERDICTS, StoredMemory, forgotten
from aegis.gate.judge_records import RUNS, JudgeRecords, end_lost, is_spent_out
from aegis.gate.judge_report import Feedback, Masker, feedback_of, judge_members, report_of, tightened
from aegis.gate.parts import Parts
from aegis.gate.record import Subject
from aegis.gate.repeat import Known
from aegis.gate.sessions import find_session, session_key
from aegis.gate.slow import Slow
from aegis.gate.surroundings import find_surroundings
from aegis.judges.model import Reviewed
from aegis.judges.payload import Subject as Judged
from aegis.judges.review import Review
from aegis.judges.run import Runner
from aegis.judges.runtime import JudgeLoop
from aegis.judges.selecting import About, selected, skips
from aegis.judges.workspace import read_workspace
from aegis.pipeline.model import Evaluation
from aegis.pipeline.run import Policy

LOOK_S: Final = 30.0  # how often runs that a crash left behind are looked for

Steps = Generator[Unit | Slow[Any], tuple[Recorded, ...], tuple[Evaluation, Ends]]
Again = Generator[Unit | Slow[Any], tuple[Recorded, ...], Evaluation]


class Judging:
    """The judges of one gate. `decide` and `observe` are the gate's own: what a judge does passes them as well."""

    def __init__(self, parts: Parts, commits: Commits, decide: Decide, observe: Observe):
        self._parts = parts
        self._commits = commits
        self._decide = decide
        self._observe = observe
        self._loop = JudgeLoop(self._end_lost)

    def steps(self, policy: Policy, subject: Subject, evaluation: Evaluation) -> Steps:
        """`evaluation` with what the judges make of the call; they are not asked about one that is blocked.

        The ends of their runs go on record with the decision.
        """
        about = _about(subject, evaluation)
        rules = policy.judges
        ends = Ends(self._commits, self._loop.submit)
        if evaluation.combined.outcome is Outcome.BLOCK or is_judge(subject.principal):
            return evaluation, ends
        if not selected(rules.validators, about):
            return evaluation, ends
        if skips(about):
            return replace(evaluation, judge={"state": "skipped"}), ends
        began = perf_counter_ns()
        slow = Slow(self._loop.submit(self._review(policy, subject, evaluation, about, ends)))
        try:
            yield slow
        except BaseException:  # the caller is gone: nothing follows that could take the ends with it
            slow.work.add_done_callback(lambda _: ends.close())
            raise
        reviewed = slow.outcome()
        report = report_of(rules, reviewed)
        feedback = feedback_of(policy, subject, rules, reviewed, self._parts.clock())
        us = (perf_counter_ns() - began) // 1_000
        return _joined(subject, evaluation, tightened(evaluation.combined, report), reviewed, feedback, us), ends

    def moved(self, subject: Subject, known: Known) -> Generator[Unit | Slow[Any], tuple[Recorded, ...], bool]:
        """Whether the files that a call was judged with are not as they were."""
        seen = self._seen(known)
        if not seen:
            return False
        slow = Slow(self._loop.submit(self._look(subject)))
        yield slow
        return slow.outcome().workspace != seen

    def again(self, policy: Policy, subject: Subject, evaluation: Evaluation, known: Known) -> Again:
        """`evaluation` of a call that a person released: judged again where it, or its files, changed since."""
        same = known.decision is not None and known.decision.call_digest == _digest(subject, evaluation)
        if same and known.decision is not None and known.decision.policy_digest == policy.digest:
            moved = yield from self.moved(subject, known)
            if not moved:
                return evaluation
        evaluation, ends = yield from self.steps(policy, subject, evaluation)
        waiting = ends.take()
        if waiting:
            yield with_ends(Unit(), waiting)
        return evaluation

    def begin(self) -> None:
        """Look from now on for runs that a crash left behind, if there are any or may be; raises `StoreError`."""
        with self._parts.store.reader() as reader:
            left = reader.documents(RUNS, state="running")
        if left or self._parts.policy.current.judges:
            self._loop.submit(asyncio.sleep(0))

    def close(self) -> None:
        """Give up what runs; every run's end is on record."""
        self._loop.close()

    def _seen(self, known: Known) -> str:
        """The digest of the files that the judges of a known call saw."""
        with self._parts.store.reader() as reader:
            entry = reader.entry(known.index)
        judged: dict[str, Any] = {} if entry is None else orjson.loads(entry.body).get("judge", {})
        return str(judged.get("workspace", ""))

    async def _look(self, subject: Subject) -> Reviewed:
        workspace = await asyncio.to_thread(read_workspace, self._mounts(subject))
        return Reviewed(cause="passed", workspace=workspace.digest)

    def _mounts(self, subject: Subject) -> tuple[str, ...]:
        with self._parts.store.reader() as reader:
            own = find_surroundings(reader, session_key(subject.principal, subject.session)).mounts
        general = self._parts.policy.current.previews.rules.workspace
        return own or ((general,) if general else ())

    async def _review(
        self, policy: Policy, subject: Subject, evaluation: Evaluation, about: About, ends: Ends
    ) -> Reviewed:
        rules = policy.judges
        try:
            judged = self._judged(policy, subject, evaluation)
        except StoreError:
            return Reviewed(cause="unavailable")
        named = _named(subject)
        runner = Runner(
            rules=rules,
            recorder=JudgeRecords(
                parts=self._parts, commits=self._commits, about=named, policy_digest=policy.digest, ends=ends
            ),
            providers=self._loop.providers,
            door=Door(self._decide, self._observe, subject),
            mask=Masker(policy.scanner),
            places=self._loop.places(rules.concurrency),
        )

        async def spent_out(judge: JudgeSpec) -> bool:
            if not rules.ceilings:
                return False
            with self._parts.store.reader() as reader:
                return is_spent_out(self._parts, reader, rules, judge.name, named)

        review = Review(runner=runner, memory=StoredMemory(self._parts, ends), spent_out=spent_out)
        try:
            return await review.of(judged, about)
        except StoreError:
            return Reviewed(cause="unavailable")

    def _judged(self, policy: Policy, subject: Subject, evaluation: Evaluation) -> Judged:
        rules, call, principal = policy.judges, subject.call, subject.principal
        with self._parts.store.reader() as reader:
            opened = find_session(self._parts, reader, principal, subject.session) if subject.session else None
            surroundings = find_surroundings(reader, session_key(principal, subject.session))
            recent = recent_calls(self._parts, reader, subject, rules.recent)
        trusted = opened is not None and bool(opened.task)
        return Judged(
            tool=call.tool,
            server=call.server,
            arguments=evaluation.arguments,
            call_id=subject.call_id,
            call_digest=_digest(subject, evaluation),
            agent=subject.agent,
            principal=principal.id,
            session=subject.session,
            turn=call.turn,
            task=opened.task if opened is not None and trusted else call.task,
            task_is_trusted=trusted,
            available_tools=surroundings.tools,
            mounts=self._mounts(subject),
            facts={
                "effects": sorted(evaluation.effects),
                "tier": evaluation.tier.word,
                "irreversible": evaluation.irreversible,
                "registered": evaluation.entry is not None and evaluation.entry.registered,
            },
            findings=[
                {"rule": one.rule, "category": one.category, "severity": one.severity.word, "message": one.message}
                for one in evaluation.combined.findings
            ],
            policy_violations=violations(recent, call.turn),
            recent_calls=recent,
            executed=executed_places(policy.subject(call.server, call.tool, evaluation.arguments)),
        )

    async def _end_lost(self) -> None:
        """End what a crash left behind and forget what is over, now and then."""
        while True:
            try:
                with self._parts.store.reader() as reader:
                    runs = reader.documents(RUNS, state="running")
                for run in runs:
                    unit = end_lost(run, self._parts.clock())
                    if unit is not None:
                        await self._commits.append(unit)
                await self._forget()
            except StoreError:  # the store is gone: the next look finds them
                runs = []
            await asyncio.sleep(LOOK_S if not runs else 1.0)

    async def _forget(self) -> None:
        """Delete the verdicts and denials that no longer count."""
        for collection in (VERDICTS, DENIED):
            after, more = "", True
            while more:
                with self._parts.store.reader() as reader:
                    unit, after = forgotten(reader, collection, after, self._parts.clock())
                if unit is not None:
                    await self._commits.append(unit)
                more = bool(after)


def _joined(
    subject: Subject, evaluation: Evaluation, combined: Any, reviewed: Reviewed, feedback: Feedback, us: int
) -> Evaluation:
    times = (*evaluation.times, feedback.time(combined.reports[-1].outcome, us))
    joined = replace(
        evaluation, combined=combined, times=times, judge=judge_members(reviewed), message=feedback.message
    )
    if combined.outcome is Outcome.BLOCK:  # a block shows the call as it was submitted
        return replace(joined, arguments=parse(subject.canonical), canonical=None)
    return joined


def _about(subject: Subject, evaluation: Evaluation) -> About:
    entry = evaluation.entry
    return About(
        tool=subject.call.tool,
        server=subject.call.server,
        category="" if entry is None else entry.category,
        effects=evaluation.effects,
        irreversible=evaluation.irreversible,
        tier=evaluation.tier,
        registered=entry is not None and entry.registered,
        skip=entry is not None and entry.skip_judge,
        unsafe_skip=entry is not None and entry.unsafe_skip_judge,
    )


def _named(subject: Subject) -> dict[str, Any]:
    """The members of a receipt that name the call."""
    named: dict[str, Any] = {
        "agent": subject.agent,
        "principal": subject.principal.id,
        "call_id": subject.call_id,
        "tool": subject.call.tool,
    }
    if subject.session:
        named["session"] = subject.session
    if subject.call.server is not None:
        named["server"] = subject.call.server
    return named


def _digest(subject: Subject, evaluation: Evaluation) -> str:
    if evaluation.canonical is None:
        return subject.request_digest
    return call_digest(server=subject.call.server, tool=subject.call.tool, arguments=evaluation.canonical)
