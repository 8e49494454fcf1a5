"""How far an infection gets in a fleet of agents that share documents, with and without holding what it reached.

`python -m benchmarks.cascades` lets fleets of 50 agents work: each reads documents and writes documents. One begins
infected; who reads what an infected agent wrote is infected. The first is found after a while and suspended. `with`
then walks what is downstream of it and holds it, and follows every call after that, as a gateway does by itself where
`cascade` says `hold`: who is held writes nothing. What was written stays where it is, and whoever reads it is infected.
How calls are followed is the product's own; that every infected agent infects each reader is the worst case. With
`--gateway` a gateway with its store and log decides every call, and nothing but its own answers stops a write.
"""

from __future__ import annotations

import argparse
import random
import sys
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Final, Protocol

from aegis.behaviour.cascades import FlowSource, FlowStep, WalkedTaint
from aegis.bootstrap import open_deployment
from aegis.core.call import ToolCall
from aegis.core.principal import Principal

DOCUMENTS: Final = 150
CALLS: Final = 4_000
GATEWAY_CALLS: Final = 4_000
FOUND_AT: Final = 120  # calls after which the first infected agent is suspended
_SOURCE: Final = FlowSource("session", "0")
_CONFIG: Final = """version: 1
limits: {rate: unlimited}
durability: os
guards: {loops: {mode: off}, behaviour: {mode: off}}
tools: {read_file: {risk: low, effects: [read]}, write_file: {risk: low, effects: [write]}}
"""


class Fleet(Protocol):
    """Who decides the calls of a fleet."""

    def call(self, agent: int, document: int, *, writes: bool) -> bool:
        """Whether one call runs."""
        ...

    def contain(self) -> None:
        """Suspend the session of the first agent."""
        ...

    def close(self) -> None: ...


class Followed:
    """A fleet whose calls are followed in memory; where it does not follow, the first agent alone is stopped."""

    def __init__(self, *, follows: bool):
        self._taint = WalkedTaint()
        self._steps: list[FlowStep] = []
        self._follows = follows
        self._contained = False

    def call(self, agent: int, document: int, *, writes: bool) -> bool:
        if self._contained and (agent == 0 or (writes and self._follows and self._taint.is_reached(str(agent)))):
            return False
        names = frozenset({f"/shared/{document}"}), frozenset[str]()
        step = FlowStep(
            receipt="", agent=f"agent-{agent}", session=str(agent), writes=writes, reads=not writes, names=lambda: names
        )
        self._taint.walk((step,), _SOURCE)
        return True

    def contain(self) -> None:
        self._contained = True

    def close(self) -> None:
        pass


class Gateway:
    """A fleet that asks a gateway, with the condition that five blocked attacks suspend a session."""

    def __init__(self, folder: Path, *, follows: bool):
        text = f"{_CONFIG}cascade: {{do: {'hold' if follows else 'off'}}}\n"
        folder.mkdir(mode=0o700)
        file = folder / "aegis.yaml"
        file.write_text(text)
        file.chmod(0o600)
        self._place = open_deployment(file, folder, agent="fleet")

    def _decide(self, agent: int, tool: str, path: str) -> bool:
        name = f"agent-{agent}"
        principal = Principal(id=name, roles=frozenset({"agent"}), agent=name)
        call = ToolCall(tool=tool, arguments={"path": path}, session=str(agent))
        return self._place.gate.decide(call, principal=principal).allowed

    def call(self, agent: int, document: int, *, writes: bool) -> bool:
        return self._decide(agent, "write_file" if writes else "read_file", f"/shared/{document}")

    def contain(self) -> None:
        for number in range(5):
            self._decide(0, "read_file", f"../../../../etc/shadow{number}")
        self._place.gate.cascades.settle()

    def close(self) -> None:
        self._place.close()


def infected_share(*, agents: int, runs: int, seed: int) -> tuple[float, float]:
    """The share of infected agents at the end, without and with holding what was reached."""
    found = [
        sum(_run(agents, random.Random(seed * 1_000 + run), Followed(follows=follows)) for run in range(runs)) / runs
        for follows in (False, True)
    ]
    return found[0], found[1]


def _run(agents: int, draw: random.Random, fleet: Fleet, calls: int = CALLS) -> float:
    infected, tainted = {0}, set[int]()
    for call in range(calls):
        if call == FOUND_AT:
            fleet.contain()
        agent, document, writes = draw.randrange(agents), draw.randrange(DOCUMENTS), draw.random() < 0.3
        if not fleet.call(agent, document, writes=writes):
            continue
        if writes:
            tainted = tainted | {document} if agent in infected else tainted - {document}
        elif document in tainted:
            infected.add(agent)
    fleet.close()
    return len(infected) / agents


def main() -> int:
    """Print the shares."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--agents", type=int, default=50)
    parser.add_argument("--runs", type=int, default=40)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--gateway", action="store_true", help="let a gateway decide every call: a minute a run")
    asked = parser.parse_args()
    if asked.gateway:
        with TemporaryDirectory() as folder:
            shares = [
                sum(
                    _run(asked.agents, random.Random(asked.seed * 1_000 + run), Gateway(
                        Path(folder) / f"{run}-{follows}", follows=follows), GATEWAY_CALLS)
                    for run in range(asked.runs)
                ) / asked.runs
                for follows in (False, True)
            ]  # fmt: skip
        without, with_it = shares
    else:
        without, with_it = infected_share(agents=asked.agents, runs=asked.runs, seed=asked.seed)
    print(
        f"{asked.agents} agents, {asked.runs} runs: infected {100 * without:.1f} % without, {100 * with_it:.1f} % with,"
        f" {100 * (1 - with_it / without):.0f} % less"
    )
    return 0


if __name__ == "__main__":
    sys.exit(main())
