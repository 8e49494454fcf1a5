"""A gate with every feature: who takes part in its decisions, and what else can be asked of it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from aegis.approvals.answering import Answer, Answering
from aegis.approvals.lifecycle import Approvals
from aegis.approvals.previews.dryrun import DryRun, DryRuns
from aegis.approvals.values import Approval
from aegis.context.files import SessionFiles
from aegis.context.opening import Opening, OpeningSteps, open_steps
from aegis.context.parents import Parents
from aegis.context.turns import Said, turn_steps
from aegis.core.decision import OpenedSession, ParentSession, SaidTurn
from aegis.core.principal import Principal
from aegis.gate.commits import Commits
from aegis.gate.control import Control
from aegis.gate.gate import Gate
from aegis.gate.observe import Results
from aegis.gate.parts import Parts
from aegis.judges.access import JudgeDoor
from aegis.judges.deciding import Judging
from aegis.missions.attestation import View, attest_session, project
from aegis.missions.issuing import Issuing
from aegis.missions.standing import Missions


@dataclass(frozen=True, kw_only=True)
class DeploymentParts(Parts):
    """The parts of a deployment with every feature: beside the kernel's, what tells what held calls would do."""

    dry_runs: DryRuns = field(default_factory=DryRuns)


class DeployedGate(Gate):
    """The gate of a deployment. Participants look at the record of a decision in the order of their list."""

    def __init__(self, parts: DeploymentParts, principal: Principal):
        control, commits, self.missions = Control(parts.store), Commits(parts.ledger), Missions(parts)
        self._judging = Judging(parts, commits, self.missions, self.adecide_for, self.aobserve)
        participants = (self._judging, Parents(parts), SessionFiles(parts), self.missions, Approvals(parts))
        super().__init__(
            parts,
            principal,
            control=control,
            commits=commits,
            results=Results(parts, control, participants),
            participants=participants,
        )
        self.parts: DeploymentParts = parts
        self.issuing = Issuing(parts, self.missions)
        self._answering = Answering(parts, control, self._decisions)

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
        said = Said(text=text, turn=turn, documents=tuple(documents))
        return self._commits.run(turn_steps(self.parts, principal or self.principal, session, said))

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
        said = Said(text=text, turn=turn, documents=tuple(documents))
        return await self._commits.arun(turn_steps(self.parts, principal or self.principal, session, said))

    def _opening(self, whose: Principal, session: str, said: Opening) -> OpeningSteps:
        return open_steps(self.parts, self.issuing, whose, session, said)

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
        self._judging.close()
        super().close()
