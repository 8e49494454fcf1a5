"""One deployment, put together: a gate with every feature. The only place that knows all parts."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any, Final

from aegis.approvals.answering import Answer, Answering, settle
from aegis.approvals.deferral import Deferrals
from aegis.approvals.lifecycle import Approvals
from aegis.approvals.previews.dryrun import DryRun, DryRuns
from aegis.approvals.previews.look import PreviewWorker
from aegis.approvals.values import Approval
from aegis.behaviour.canaries import Canaries
from aegis.behaviour.cascading import Cascades
from aegis.behaviour.deciding import Behaviour, ContainmentWatch
from aegis.behaviour.usual import UsualCalls
from aegis.bootstrap.introduce import Introductions, check_foreign
from aegis.bootstrap.state import open_state
from aegis.config.config import Config
from aegis.config.reload import Change, PolicyHolder
from aegis.context.embeddings import DriftMeasures
from aegis.context.ending import end_steps
from aegis.context.files import SessionFiles
from aegis.context.heads import note_said
from aegis.context.memory import SessionMemory
from aegis.context.opening import Opening, OpeningSteps, open_steps
from aegis.context.parents import Parents
from aegis.context.turns import UserTurn, turn_steps
from aegis.core.decision import (
    DeclaredPlan,
    EndedSession,
    OpenedSession,
    ParentSession,
    SaidTurn,
)
from aegis.core.ports import Document, Store, Transaction
from aegis.core.principal import Principal
from aegis.core.receipt import Draft
from aegis.core.times import system_clock
from aegis.detect.rules.cache import default_cache_folder
from aegis.gate.commits import Commits
from aegis.gate.control import Control
from aegis.gate.events import About, Event, Listener, new_id, notify
from aegis.gate.gate import Gate
from aegis.gate.observe import Results
from aegis.gate.participants import Doing
from aegis.gate.parts import Parts
from aegis.judges.access import JudgeDoor
from aegis.judges.deciding import Judging
from aegis.keys.keyring import Keyring
from aegis.log.writer import Ledger, Unit
from aegis.missions.attestation import View, attest_session, project
from aegis.missions.issuing import Issuing
from aegis.missions.standing import Missions
from aegis.outbound.worker import Deliveries
from aegis.reasoning.deciding import ReasoningGuard
from aegis.reasoning.declaring import plan_steps
from aegis.store.shared import Books


@dataclass(frozen=True, kw_only=True)
class DeploymentParts(Parts):
    """The parts of a deployment with every feature: beside the kernel's, what tells what held calls would do.

    `books` are what several processes of one gateway count together.
    """

    dry_runs: DryRuns = field(default_factory=DryRuns)
    books: Books | None = None


class DeployedGate(Gate):
    """The gate of a deployment. Participants look at the record of a decision in the order of their list."""

    def __init__(self, parts: DeploymentParts, principal: Principal):
        control, commits, self.missions = Control(parts.store, parts.clock), Commits(parts.ledger), Missions(parts)
        canaries, self.usual = Canaries(parts.store), UsualCalls(parts.store)
        self.cascades = Cascades(parts, control)
        self._judging = Judging(parts, commits, self.missions, self.adecide_for, self.aobserve)
        self.memory = SessionMemory(parts)
        participants = (
            self._judging,
            Parents(parts),
            SessionFiles(parts),
            self.memory,
            Behaviour(
                parts, control, canaries, self.usual, self.cascades, None if parts.books is None else parts.books.loops
            ),
            ReasoningGuard(parts),
            self.missions,
            Deferrals(parts),
            Approvals(parts),
        )
        super().__init__(
            parts,
            principal,
            control=control,
            commits=commits,
            results=Results(parts, control, participants),
            participants=participants,
        )
        self.parts: DeploymentParts = parts
        parts.ledger.watch = ContainmentWatch(parts, canaries, self.usual, self.cascades)
        self.issuing = Issuing(parts, self.missions)
        self._answering = Answering(parts, control, self._decisions)
        self._settle = partial(settle, parts, control, self._decisions)
        self._measures = DriftMeasures(parts)
        parts.listeners.append(("session", self._measures))
        self.results.settle = self._settle

    def begin(self) -> None:
        """Start what a long-lived gate does beside its calls: end judge runs that a crash left behind.

        Raises `StoreError`. Without it that begins with the first judged call.
        """
        self._judging.begin()

    def judge_door(self) -> JudgeDoor:
        """The way of a judge's own calls through this gate, where it looks at no call of anybody's: an evaluation."""
        return JudgeDoor(self.adecide_for, self.aobserve)

    def open_session(
        self,
        session: str,
        *,
        task: str = "",
        mission: str | None = None,
        tools: Sequence[Any] | None = None,
        proof: str | None = None,
        owner: str = "",
        mounts: Sequence[str] = (),
        turns: Sequence[str] = (),
        parent: ParentSession | None = None,
        principal: Principal | None = None,
    ) -> OpenedSession:
        """Open `session` with the task that the host trusts, and under a mission where one is named.

        `tools` are what the host offers the agent; `proof` answers a challenge where the mission names
        a holder key; `owner` is the person for whom it runs; `mounts` are the folders of this machine that the
        agent works in, which previews and judges look at; `turns` are what the user said after the task, and `parent`
        is the session that this one was opened from. The same words again find the same session.
        Raises `InvalidCall` where it is not opened, and `StoreError` where nothing can be recorded.
        """
        said = Opening(
            task=task, mission=mission, tools=tools, proof=proof, owner=owner, mounts=mounts, turns=turns, parent=parent
        )
        return self._commits.run(self._opening(principal or self.principal, session, said))

    async def aopen_session(
        self,
        session: str,
        *,
        task: str = "",
        mission: str | None = None,
        tools: Sequence[Any] | None = None,
        proof: str | None = None,
        owner: str = "",
        mounts: Sequence[str] = (),
        turns: Sequence[str] = (),
        parent: ParentSession | None = None,
        principal: Principal | None = None,
    ) -> OpenedSession:
        """`open_session` for event loops."""
        said = Opening(
            task=task, mission=mission, tools=tools, proof=proof, owner=owner, mounts=mounts, turns=turns, parent=parent
        )
        return await self._commits.arun(self._opening(principal or self.principal, session, said))

    def add_turn(
        self,
        session: str,
        text: str,
        *,
        turn: int | None = None,
        documents: Sequence[str] = (),
        principal: Principal | None = None,
    ) -> SaidTurn:
        """Record what the user said in `session`, which is opened where it is not open; `turn` is its number.

        `documents` are what the user pasted: they count as read and untrusted. The same turn with the same text is
        found. Raises `InvalidCall` where it is not recorded, and `StoreError` where nothing can be recorded.
        """
        said = UserTurn(text=text, turn=turn, documents=tuple(documents))
        return self._commits.run(self._saying(principal or self.principal, session, said))

    async def aadd_turn(
        self,
        session: str,
        text: str,
        *,
        turn: int | None = None,
        documents: Sequence[str] = (),
        principal: Principal | None = None,
    ) -> SaidTurn:
        """`add_turn` for event loops."""
        said = UserTurn(text=text, turn=turn, documents=tuple(documents))
        return await self._commits.arun(self._saying(principal or self.principal, session, said))

    def _saying(self, whose: Principal, session: str, said: UserTurn) -> Doing[SaidTurn]:
        told = yield from turn_steps(self.parts, whose, session, said, partial(note_said, self.parts))
        self._measures.opened(whose.id, session)
        yield from self._settle(whose.id, session)
        return told

    def declare_plan(self, session: str, plan: dict[str, Any], *, principal: Principal | None = None) -> DeclaredPlan:
        """Declare what `session` is about to do: `steps`, each a `tool` with `arguments`, `effects` and `times`.

        With `ordered` each follows those before it. Calls outside of the plan are held from then on. A plan that lets
        more through than the one in force waits for a person. Raises `InvalidCall` where it is not declared.
        """
        return self._commits.run(self._planning(principal or self.principal, session, plan))

    async def adeclare_plan(
        self, session: str, plan: dict[str, Any], *, principal: Principal | None = None
    ) -> DeclaredPlan:
        """`declare_plan` for event loops."""
        return await self._commits.arun(self._planning(principal or self.principal, session, plan))

    def _planning(self, whose: Principal, session: str, plan: dict[str, Any]) -> Doing[DeclaredPlan]:
        enforced = self.parts.policy.current.behaviour.reasoning.mode == "enforce"
        return plan_steps(self.parts, whose, session, plan, self._decisions.steps, enforced=enforced)

    def end_session(self, session: str, *, principal: Principal | None = None) -> EndedSession:
        """End `session`: nothing is said or called in it any more, and what waits or was granted in it ends.

        Calls whose result never came are recorded as such. An end that is on record is found. Raises `InvalidCall`
        (404) for a session that nobody knows, and `StoreError` where nothing can be recorded.
        """
        return self._commits.run(end_steps(self.parts, principal or self.principal, session))

    async def aend_session(self, session: str, *, principal: Principal | None = None, by: str = "") -> EndedSession:
        """`end_session` for event loops; `by` is who ends it, where the principal itself does not."""
        return await self._commits.arun(end_steps(self.parts, principal or self.principal, session, by=by))

    async def asettle(self, principal: str, session: str) -> None:
        """End the wait of the deferred calls of a session for which the evidence came, whoever recorded it."""
        await self._commits.arun(self._settle(principal, session))

    def _opening(self, whose: Principal, session: str, said: Opening) -> OpeningSteps:
        opened = yield from open_steps(self.parts, self.issuing, whose, session, said)
        self._measures.opened(whose.id, session)
        return opened

    def answer(self, approval_id: str, answer: Answer, *, principal: Principal) -> Approval:
        """Count a person's answer to a held call; raises `InvalidCall` where it does not count."""
        return self._commits.run(self._answering.steps(principal, approval_id, answer))

    async def aanswer(self, approval_id: str, answer: Answer, *, principal: Principal) -> Approval:
        """`answer` for event loops."""
        return await self._commits.arun(self._answering.steps(principal, approval_id, answer))

    def attest_session(self, session: str, *, principal: Principal | None = None, whose: str | None = None) -> str:
        """The signed summary of a session; auditors name the principal `whose` it is.

        Raises `InvalidCall` where the log holds nothing of it.
        """
        asks = principal or self.principal
        return self._commits.look(lambda: attest_session(self.parts, self.missions, asks, session, whose=whose))

    def project(self, receipt_id: str, view: View = "public", *, principal: Principal | None = None) -> str:
        """One receipt as a signed projection: `public`, or `audit` for auditors."""
        return self._commits.look(lambda: project(self.parts, principal or self.principal, receipt_id, view))

    def dry_run(self, selector: str, tell: DryRun) -> None:
        """Ask `tell` what a held call of these tools would do; it is given the arguments, and must do nothing.

        It is asked about tools whose entry says `dryrun_supported: true`.
        """
        self.parts.dry_runs.register(selector, tell)

    def close(self) -> None:
        """End the judges' runs, finish what is under way and release the store."""
        self.cascades.close()
        self._judging.close()
        self._measures.close()
        super().close()


# One deployment, put together: the only place that knows all parts.

# Every configuration that decides is in the log before it decides, with who put it in force.

COLLECTION: Final = "policies"
GATE: Final = "gate"


def record_start(ledger: Ledger, digest: str) -> None:
    """Record the policy that this process starts with, where the log does not know it yet."""

    def apply(transaction: Transaction) -> Sequence[Draft]:
        if transaction.document(COLLECTION, digest) is not None:
            return ()
        transaction.put_document(Document(collection=COLLECTION, key=digest, version=1, body=b"start"))
        return (_draft(digest, action="start", principal=GATE),)

    ledger.append(Unit(apply=apply))


def recorder(ledger: Ledger, listeners: Sequence[Listener | About]) -> Callable[[Change], None]:
    """Give what records each change of the policy; raises `StoreError` where it cannot, and nothing changes then."""

    def record(change: Change) -> None:
        draft = _draft(change.after, action=change.trigger, principal=change.by or GATE)

        def apply(transaction: Transaction) -> Sequence[Draft]:
            stored = transaction.document(COLLECTION, change.after)
            version = 1 if stored is None else stored.version + 1
            transaction.put_document(
                Document(collection=COLLECTION, key=change.after, version=version, body=change.trigger.encode())
            )
            return (draft,)

        recorded = ledger.append(Unit(apply=apply))
        notify(listeners, Event(kind="config", members=draft.members, recorded=recorded[0]))

    return record


def _draft(digest: str, *, action: str, principal: str) -> Draft:
    members: dict[str, Any] = {
        "kind": "config",
        "receipt_id": new_id(),
        "principal": principal,
        "policy_digest": digest,
        "action": action,
    }
    return Draft(members=members)


@dataclass(frozen=True, kw_only=True)
class Deployment:
    """A gate and the parts that tools beside it need (command line, gateway, doctor)."""

    home: Path
    config: Config
    config_path: Path | None
    log: str
    store: Store
    keyring: Keyring
    ledger: Ledger
    introductions: Introductions
    policy: PolicyHolder
    gate: DeployedGate
    deliveries: Deliveries

    def close(self) -> None:
        """Finish what is under way and release the store."""
        self.gate.close()


def open_deployment(
    config: Path | None = None,
    home: Path | None = None,
    *,
    agent: str | None = None,
    protected: Sequence[Path] = (),
    accept_rollback: str | None = None,
    text: str | None = None,
    books: Books | None = None,
    gate: Callable[[DeploymentParts, Principal], DeployedGate] = DeployedGate,
) -> Deployment:
    """Open the deployment whose state is in `home` under the configuration `config`.

    The gate acts as `agent` (default `AEGIS_AGENT`, else `local`) where no credential says otherwise. Calls that name
    the home, the configuration or one of the paths `protected` are blocked. `accept_rollback` says why a store that
    does not continue what this home saw is right, and is recorded. `text` stands for the file of the configuration.
    `books` are what the processes of one gateway count together, and `gate` makes the gate.
    Raises `ConfigError`, `KeyFileError` or `StoreError`.
    """
    state = open_state(config, home, accept_rollback=accept_rollback, text=text, books=books)
    try:
        policy = PolicyHolder(
            state.config,
            path=state.config_path,
            cache=default_cache_folder(),
            protected=(state.home, *protected),
            text=state.text,
        )
        check_foreign(state.config, state.home, state.store)
        policy.also(lambda candidate: check_foreign(candidate, state.home, state.store))
        record_start(state.ledger, policy.current.digest)
    except BaseException:
        state.close()
        raise
    policy.on_change(recorder(state.ledger, state.listeners))
    policy.current.windows.follow(state.elsewhere)
    if books is not None:
        policy.current.windows.share(books.calls, books.sizes)

    def close() -> None:
        """Let what is under way end, then release the store."""
        previews.close()
        deliveries.close()
        state.close()

    name = agent or os.environ.get("AEGIS_AGENT") or "local"
    principal = Principal(id=f"local:{name}", roles=frozenset({"agent"}), agent=name)
    parts = DeploymentParts(
        store=state.store,
        ledger=state.ledger,
        keys=state.keyring,
        policy=policy,
        clock=system_clock,
        introduce=state.introductions.agent,
        introduce_keys=state.introductions.missions,
        listeners=state.listeners,
        private=(state.home, *(() if state.config_path is None else (state.config_path,))),
        close=close,
        local=principal.id,
        books=books,
    )
    previews = PreviewWorker(parts, parts.dry_runs)
    state.listeners.append(("approval_id", previews))
    deliveries = Deliveries(state.store, system_clock)

    def told(_event: Event) -> None:
        """Messages are in the outbox once an approval is on record; somebody has to send them."""
        if policy.current.approval_rules.notifies:
            deliveries.start()

    state.listeners.append(("approval_id", told))
    return Deployment(
        home=state.home,
        config=state.config,
        config_path=state.config_path,
        log=state.log,
        store=state.store,
        keyring=state.keyring,
        ledger=state.ledger,
        introductions=state.introductions,
        policy=policy,
        gate=gate(parts, principal),
        deliveries=deliveries,
    )
