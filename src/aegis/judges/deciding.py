"""Judges inside of a decision: started after the deterministic guards, if these left the question open.

A judge's word is one more report, joined by the maximum. The run goes on on the judges' own loop; a call
whose caller goes away takes its judges with it.
"""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import Mapping, Sequence
from time import perf_counter_ns
from typing import Any, Final

import orjson
from msgspec.structs import replace

from aegis.context.sessions import find_session, find_surroundings, session_key
from aegis.core.canonical import call_digest
from aegis.core.combine import tightened
from aegis.core.json import parse
from aegis.core.judging import JudgeSpec
from aegis.core.outcome import Outcome, Reason
from aegis.core.ports import Document, Reader, Search, Transaction
from aegis.core.receipt import Draft
from aegis.core.times import MICROS
from aegis.detect.facts import FactSubject as Called
from aegis.detect.facts import ReadLimits
from aegis.detect.gather import executed_places
from aegis.errors import MissionInvalid, StoreError
from aegis.gate.commits import Commits
from aegis.gate.participants import DecisionAttempt, Doing, Part, Participant, refuse
from aegis.gate.parts import Parts, Slow
from aegis.gate.record import Subject
from aegis.gate.repeat import Known, load_payload
from aegis.judges.access import JudgeDecide, JudgeDoor, Observe, is_judge, worker_view
from aegis.judges.payload import JudgeSubject as Judged
from aegis.judges.payload import claimed_reasoning, within
from aegis.judges.providers import About, selected, skips
from aegis.judges.records import (
    RUNS,
    Feedback,
    JudgeEnds,
    JudgeRecords,
    Masker,
    end_lost,
    feedback_of,
    is_spent_out,
    judge_members,
    report_of,
    with_ends,
)
from aegis.judges.run import PROBING_S, Intent, JudgeLoop, Key, Review, Runner
from aegis.judges.values import JudgeRan, JudgeSignal, Result, Reviewed
from aegis.judges.workspace import read_workspace
from aegis.log.writer import Unit
from aegis.missions.standing import Missions
from aegis.policy.mission import MissionView
from aegis.policy.model import Evaluation
from aegis.policy.policy import Policy

# What a judge is told about the session: its trusted task, and the calls that came before this one.

MAX_SHOWN: Final = 2_048  # bytes of one earlier call's arguments


def recent_calls(parts: Parts, reader: Reader, subject: Subject, count: int) -> list[dict[str, Any]]:
    """The last calls of the session, oldest first, each with what became of it."""
    if not subject.session or not count:
        return []
    search = Search(kind="decision", principal=subject.principal.id, session=subject.session, limit=count)
    found: list[dict[str, Any]] = []
    for entry in reader.search(search):
        payload, _ = load_payload(parts, reader, entry)
        body = orjson.loads(entry.body)
        row: dict[str, Any] = {
            "tool": body["tool"],
            "server": body.get("server"),
            "call_id": body["call_id"],
            "decision": body["decision"],
            "reason": body["reason"],
        }
        if payload is not None:
            if "arguments" in payload:  # those of a call beyond its agent's rate are not kept
                arguments = payload.get("patched") or payload["arguments"]
                made = Called(tool=body["tool"], server=body.get("server"), arguments=arguments, limits=ReadLimits())
                row["arguments"] = within(arguments, MAX_SHOWN, executed_places(made))[0]
            row["turn"] = payload.get("claimed", {}).get("turn")
        found.append(row)
    return found[::-1]


def violations(recent: list[dict[str, Any]], turn: int | None) -> list[dict[str, Any]]:
    """The tools that policy blocked earlier in the same turn."""
    blocked = [row for row in recent if row["decision"] == Outcome.BLOCK.word and row.get("turn") == turn]
    return [{"tool": row["tool"], "server": row["server"], "reason": row["reason"]} for row in blocked]


# The judges' memory in the store: every gateway on it knows a verdict, and counts what was denied.
#
# It is written in the transaction that records the run's end or the decision. A verdict's words stay where they are
# sealed, beside the receipt of the run's end: erasing them there ends the verdict's use.

VERDICTS: Final = "judge-verdicts"
DENIED: Final = "judge-denied"
MAX_VARIANTS: Final = 1_000  # of one intent: as many as a configuration can ask to be counted
PAGE: Final = 1_000  # documents that are looked at, and forgotten, at a time


class StoredMemory:
    """The memory as one call's judges use it; what they add goes on record with `ends`."""

    def __init__(self, parts: Parts, ends: JudgeEnds):
        self._parts = parts
        self._ends = ends

    def find(self, key: Key, judge: str) -> JudgeRan | None:
        """The run whose verdict still holds; raises `StoreError`."""
        with self._parts.store.reader() as reader:
            document = reader.document(VERDICTS, _name(key))
            kept = None if document is None else orjson.loads(document.body)
            if kept is None or self._parts.clock() >= kept["until"]:
                return None
            entry = reader.entry_by_id(kept["receipt"])
            payload = None if entry is None else load_payload(self._parts, reader, entry)[0]
        if payload is None or payload["result"] is None:
            return None
        return JudgeRan(judge=judge, run_id=kept["run"], cause="passed", result=_result(payload["result"]), cached=True)

    def keep(self, key: Key, ran: JudgeRan, seconds: int) -> None:
        """Let the verdict of a well-formed run count for so many seconds."""
        if seconds <= 0 or ran.result is None or not ran.receipt_id:
            return
        until = self._parts.clock() + seconds * MICROS
        body = orjson.dumps({"until": until, "receipt": ran.receipt_id, "run": ran.run_id})

        def write(transaction: Transaction) -> Sequence[Draft]:
            _put(transaction, VERDICTS, _name(key), body)
            return ()

        self._ends.keep(write)

    def is_probing(self, intent: Intent, call_digest: str, bound: int) -> bool:
        """Whether so many other variants were denied that this one is refused without looking; raises `StoreError`."""
        with self._parts.store.reader() as reader:
            variants = _recent(reader, intent, self._parts.clock())
        return len(variants) >= bound and call_digest not in variants

    def count(self, intent: Intent, call_digest: str) -> None:
        """This variant of the intent was denied."""
        now = self._parts.clock()

        def write(transaction: Transaction) -> Sequence[Draft]:
            variants = _recent(transaction, intent, now)
            variants[call_digest] = now
            newest = dict(sorted(variants.items(), key=lambda row: row[1])[-MAX_VARIANTS:])
            body = orjson.dumps({"until": now + PROBING_S * MICROS, "seen": newest})
            _put(transaction, DENIED, _name(intent), body)
            return ()

        self._ends.keep(write)


def forgotten(reader: Reader, collection: str, after: str, now: int) -> tuple[Unit | None, str]:
    """The unit that deletes what no longer counts in one page of a collection, and where the next page begins."""
    page = reader.documents(collection, after=after, limit=PAGE)
    over = [document for document in page if orjson.loads(document.body)["until"] <= now]

    def apply(transaction: Transaction) -> Sequence[Draft]:
        for document in over:
            found = transaction.document(collection, document.key)
            if found is not None and found.version == document.version:
                transaction.delete_document(collection, document.key)
        return ()

    return Unit(apply=apply) if over else None, page[-1].key if len(page) == PAGE else ""


def _recent(reader: Reader, intent: Intent, now: int) -> dict[str, int]:
    """The variants that were denied within the time that counts, each with its newest moment."""
    document = reader.document(DENIED, _name(intent))
    seen: dict[str, int] = {} if document is None else orjson.loads(document.body)["seen"]
    return {digest: at for digest, at in seen.items() if at > now - PROBING_S * MICROS}


def _name(of: tuple[str, ...]) -> str:
    return hashlib.sha256(orjson.dumps(list(of))).hexdigest()


def _put(transaction: Transaction, collection: str, key: str, body: bytes) -> None:
    known = transaction.document(collection, key)
    version = 1 if known is None else known.version + 1
    transaction.put_document(Document(collection=collection, key=key, version=version, body=body))


def _result(wire: dict[str, Any]) -> Result:
    return Result(**{**wire, "signals": tuple(JudgeSignal(**one) for one in wire["signals"])})


LOOK_S: Final = 30.0  # how often runs that a crash left behind are looked for


class Judging(Participant):
    """The judges of one gate. `decide` and `observe` are the gate's own: what a judge does passes them as well."""

    def __init__(self, parts: Parts, commits: Commits, missions: Missions, decide: JudgeDecide, observe: Observe):
        self._parts = parts
        self._commits = commits
        self._missions = missions
        self._decide = decide
        self._observe = observe
        self._loop = JudgeLoop(self._end_lost)

    def view(self, asked: DecisionAttempt) -> Part | Evaluation | None:
        """A judge may do nothing that the session of its worker may not, and nothing once the worker is stopped."""
        worker = asked.subject.worker
        if worker is None:
            return None
        if asked.state.stops(worker.agent):
            return refuse("revocation", Reason.REVOKED)
        try:
            view = worker_view(self._missions, worker, asked.state, asked.policy)
        except MissionInvalid:
            return refuse("mission", Reason.MISSION_INVALID)
        return None if view is None else _WorkerView(view)

    def is_idle(self, policy: Policy) -> bool:
        return not policy.judges.validators

    def review(self, asked: DecisionAttempt, evaluation: Evaluation) -> Doing[tuple[Evaluation, JudgeEnds]] | None:
        """`evaluation` with what the judges make of the call; they are not asked about one that is blocked.

        The ends of their runs go on record with the decision.
        """
        policy, subject = asked.policy, asked.subject
        if not policy.judges.validators or evaluation.combined.outcome is Outcome.BLOCK or is_judge(subject.principal):
            return None
        about = _about(subject, evaluation)
        if not selected(policy.judges.validators, about):
            return None
        return self._judged_with(policy, subject, evaluation, about)

    def _judged_with(
        self, policy: Policy, subject: Subject, evaluation: Evaluation, about: About
    ) -> Doing[tuple[Evaluation, JudgeEnds]]:
        rules = policy.judges
        ends = JudgeEnds(self._commits, self._loop.submit)
        if skips(about):
            return replace(evaluation, judge={"state": "skipped"}), ends
        began = perf_counter_ns()
        slow = Slow(self._loop.submit(self._review(policy, subject, evaluation, about, ends)))
        try:
            yield slow
        except BaseException:  # the caller is gone: nothing follows that could take the ends with it
            slow.work.add_done_callback(lambda _: ends.drop())
            raise
        try:
            reviewed = _outcome(slow)
            report = report_of(rules, reviewed)
            feedback = feedback_of(policy, subject, rules, reviewed, self._parts.clock())
            us = (perf_counter_ns() - began) // 1_000
            return _joined(subject, evaluation, tightened(evaluation.combined, report), reviewed, feedback, us), ends
        except BaseException:
            ends.drop()
            raise

    def has_moved(self, asked: DecisionAttempt) -> Doing[bool] | None:
        """Whether the files that a call was judged with are not as they were."""
        if asked.known is None or not asked.policy.judges:
            return None
        seen = self._seen(asked.known)
        return self._differs(asked.subject, seen) if seen else None

    def _differs(self, subject: Subject, seen: str) -> Doing[bool]:
        slow = Slow(self._loop.submit(self._look(subject)))
        yield slow
        return _outcome(slow).workspace != seen

    def review_again(self, asked: DecisionAttempt, evaluation: Evaluation) -> Doing[Evaluation] | None:
        """`evaluation` of a call that a person released: judged again where it, or its files, changed since."""
        return self._judged_again(asked, evaluation) if asked.policy.judges else None

    def _judged_again(self, asked: DecisionAttempt, evaluation: Evaluation) -> Doing[Evaluation]:
        known = None if asked.known is None else asked.known.decision
        same = known is not None and known.call_digest == _digest(asked.subject, evaluation)
        if same and known is not None and known.policy_digest == asked.policy.digest:
            moved = self.has_moved(asked)
            if moved is None or not (yield from moved):
                return evaluation
        review = self.review(asked, evaluation)
        if review is None:
            return evaluation
        evaluation, part = yield from review
        waiting = part.take()
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
        self, policy: Policy, subject: Subject, evaluation: Evaluation, about: About, ends: JudgeEnds
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
            door=JudgeDoor(self._decide, self._observe, subject),
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
                **({} if call.reasoning is None else {"claimed_reasoning": claimed_reasoning(call.reasoning)}),
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


class _WorkerView(Part):
    """The mission of the worker, as guards hold a judge's own calls to it."""

    __slots__ = ("_view",)

    def __init__(self, view: MissionView):
        self._view = view

    def shows(self) -> Mapping[str, Any]:
        return {"mission": self._view}


def _outcome(slow: Slow[Reviewed]) -> Reviewed:
    """What a review came to; one that broke is a review that failed."""
    if slow.work.cancelled():
        return Reviewed(cause="cancelled")
    if slow.work.exception() is not None:
        return Reviewed(cause="failed")
    return slow.work.result()


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
