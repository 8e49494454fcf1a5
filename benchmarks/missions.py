"""What missions cost: a check beside a plain decision, with a proof, over a long session, and on a stream.

Run it as `python -m benchmarks.missions`; figures are medians of one run on this machine,
in time of the processor, which other processes of the machine disturb least.
"""

from __future__ import annotations

import statistics
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from aegis.bootstrap import open_deployment
from aegis.bootstrap.deployment import DeployedGate
from aegis.core.call import ToolCall
from aegis.core.canonical import call_digest, canonical
from aegis.core.principal import Principal
from aegis.keys.keyring import Ed25519Signer
from aegis.missions.holder import prove_calls, prove_session
from aegis.missions.status import encode
from benchmarks import streaming

ISSUER = Principal(id="issuer", roles=frozenset({"issuer"}))
CONFIG = """version: 1
profile: standard
limits: {rate: unlimited}
durability: os
tools: {read_file: {risk: low, effects: [read]}}
"""
CALLS = 2_000
SESSION_CALLS = 10_000


def main() -> None:
    """Measure and print."""
    for name, value in measure().items():
        print(f"{name:<44}{value:>12}")


def measure() -> dict[str, str]:
    """Every figure by its name."""
    with tempfile.TemporaryDirectory(prefix="aegis-bench-") as folder:
        home = Path(folder) / "home"
        home.mkdir(mode=0o700)
        file = home / "aegis.yaml"
        file.write_text(CONFIG)
        file.chmod(0o600)
        gate = open_deployment(file, home, agent="bot").gate
        key = Ed25519Signer(bytes(32), "holder")
        _open(gate, "checked")
        _open(gate, "proved", key)
        found = _calls(gate, key)
        found.update(_long(gate))
        found.update(streaming.measure(gate, _open))
        gate.close()
    return found


def _calls(gate: DeployedGate, key: Ed25519Signer) -> dict[str, str]:
    """Three kinds of calls in turn, each compared with the one before it: they see the same machine."""
    arguments = {"path": "/ws/reports/q3.txt", "limit": 10}
    digest = call_digest(server=None, tool="read_file", arguments=canonical(arguments))
    proofs = [
        prove_calls(key, audience="aegis", session="proved", number=number, digests=(digest,))
        for number in range(1, CALLS + 1)
    ]
    times: dict[str, list[float]] = {"plain": [], "checked": [], "proved": []}
    for number in range(CALLS):
        for name, session, proof in (
            ("plain", None, None),
            ("checked", "checked", None),
            ("proved", "proved", proofs[number]),
        ):
            call = ToolCall(tool="read_file", arguments=arguments, session=session, proof=proof)
            times[name].append(_timed(lambda call=call: gate.decide(call)))  # type: ignore[misc]

    def beyond(name: str) -> float:
        return statistics.median(one - plain for plain, one in zip(times["plain"], times[name], strict=True))

    return {
        "plain decision": f"{statistics.median(times['plain']):.0f} us",
        "mission check beyond it": f"{beyond('checked'):.0f} us",
        "mission check with a proof beyond it": f"{beyond('proved'):.0f} us",
    }


def _long(gate: DeployedGate) -> dict[str, str]:
    _open(gate, "long")
    times = [
        _timed(lambda: gate.decide(ToolCall(tool="read_file", arguments={"path": "/ws/a"}, session="long")))
        for _ in range(SESSION_CALLS)
    ]
    first, last = statistics.median(times[:100]), statistics.median(times[-100:])
    return {f"last 100 of {SESSION_CALLS} calls against the first": f"{last / first:.2f} x"}


def _open(gate: DeployedGate, session: str, key: Ed25519Signer | None = None, **more: Any) -> None:
    claims: dict[str, Any] = {
        "sub": "bot",
        "purpose": "measure",
        "exp": int(time.time()) + 3_600,
        "tools": {"allow": ["read_*"]},
        "effects": ["read"],
        "scope": {"paths": ["glob:/ws/**"]},
        "budgets": {"calls": 10**9, "effects": {"read": 10**9}},
        **more,
    }
    if key is not None:
        claims["cnf"] = {"jwk": {"kty": "OKP", "crv": "Ed25519", "x": encode(key.public).decode()}}
        claims["evidence"] = ["session_proof", "call_proof"]
    issued = gate.issuing.issue(ISSUER, claims=claims)
    if issued.unit is not None:
        gate.record(issued.unit)
    mission, proof = issued.declaration.mission_id, None
    if key is not None:
        nonce, unit = gate.issuing.challenge(gate.principal)
        gate.record(unit)
        proof = prove_session(
            key, audience="aegis", nonce=nonce, mission_id=mission, session=session, now_seconds=int(time.time())
        )
    gate.open_session(session, mission=mission, proof=proof)


def _timed(call: Callable[[], object]) -> float:
    started = time.process_time_ns()
    call()
    return (time.process_time_ns() - started) / 1_000


if __name__ == "__main__":
    main()
