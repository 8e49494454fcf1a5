"""How far an infection gets in a fleet of agents that share documents, with and without holding what it reached.

`python -m benchmarks.cascades` lets fleets of 50 agents work: each reads documents and writes documents. One begins
infected; who reads what an infected agent wrote is infected. The first is found after a while and suspended. `with`
then looks for what is downstream of it and holds it, as `POST /v1/containment/{id}/downstream` does, and looks again
every so many calls: who is held writes nothing. What was written stays where it is, and whoever reads it is infected.
The walk is the product's own; that every infected agent infects each reader is the worst case.
"""

from __future__ import annotations

import argparse
import random
import sys
from typing import Final

from aegis.behaviour.cascades import FlowStep, walk_flows

DOCUMENTS: Final = 150
CALLS: Final = 4_000
FOUND_AT: Final = 120  # calls after which the first infected agent is suspended
AGAIN: Final = 100  # calls between two looks


def infected_share(*, agents: int, runs: int, seed: int, again: int = AGAIN) -> tuple[float, float]:
    """The share of infected agents at the end, without and with holding what was reached."""
    found = [
        sum(_run(agents, random.Random(seed * 1_000 + run), again=again if follows else 0) for run in range(runs))
        / runs
        for follows in (False, True)
    ]
    return found[0], found[1]


def _run(agents: int, draw: random.Random, *, again: int) -> float:
    infected, held, tainted = {0}, set[int](), set[int]()
    steps: list[FlowStep] = []
    for call in range(CALLS):
        if call == FOUND_AT:
            held.add(0)
        if again and call >= FOUND_AT and (call - FOUND_AT) % again == 0:
            held |= {int(name) for name in walk_flows(steps, frozenset({"0"}), frozenset())}
        agent, document = draw.randrange(agents), draw.randrange(DOCUMENTS)
        if agent in held:
            continue
        writes = draw.random() < 0.3
        if writes:
            tainted = tainted | {document} if agent in infected else tainted - {document}
        elif document in tainted:
            infected.add(agent)
        place = frozenset({f"/shared/{document}"})
        steps.append(FlowStep(f"r{call}", f"agent-{agent}", str(agent), "", place, frozenset(), writes, not writes))
    return len(infected) / agents


def main() -> int:
    """Print the shares."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--agents", type=int, default=50)
    parser.add_argument("--runs", type=int, default=40)
    parser.add_argument("--seed", type=int, default=1)
    asked = parser.parse_args()
    without, with_it = infected_share(agents=asked.agents, runs=asked.runs, seed=asked.seed)
    print(
        f"{asked.agents} agents, {asked.runs} runs: infected {100 * without:.0f} % without, {100 * with_it:.0f} % with"
    )
    return 0


if __name__ == "__main__":
    sys.exit(main())
