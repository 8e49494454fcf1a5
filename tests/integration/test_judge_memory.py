"""What judges remember is the store's: every gateway on it knows a verdict, a ceiling, and what was denied."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import orjson
import pytest
from msgspec import structs

from aegis.bootstrap import Deployment, open_deployment
from aegis.bootstrap.deployment import DeployedGate
from aegis.core.call import ToolCall
from aegis.core.outcome import Outcome
from aegis.core.ports import Document, Search, Transaction
from aegis.core.receipt import Draft
from aegis.core.times import system_clock
from aegis.log.writer import Unit
from support.deployments import deployment
from support.scripted_model import BAD, ScriptedModel, scripted_model

HEAD = "version: 1\nlimits: {rate: unlimited}\n"


@pytest.fixture
def model() -> Iterator[ScriptedModel]:
    with scripted_model() as running:
        yield running


@contextmanager
def two(home: Path, model: ScriptedModel, entry: str = "", more: str = "") -> Iterator[tuple[Deployment, Deployment]]:
    """Two deployments on one store that share nothing else."""
    text = f"{HEAD}judges: [{{name: look, model: {model.openai}{entry}}}]\n{more}"
    with ExitStack() as stack:
        first = deployment(home, text)
        stack.callback(first.close)
        second = open_deployment(home / "aegis.yaml", home, agent="bot")
        stack.callback(second.close)
        yield first, second


def ask(running: Deployment, **arguments: Any) -> Outcome:
    return running.gate.decide(ToolCall(tool="write_note", arguments=arguments or {"text": "hello"})).outcome


def last(running: Deployment) -> dict[str, Any]:
    """What the newest decision says of its review."""
    with running.store.reader() as reader:
        body = orjson.loads(reader.search(Search(kind="decision", limit=1))[0].body)
    return dict(body["judge"])


def documents(running: Deployment, collection: str) -> list[Document]:
    with running.store.reader() as reader:
        return reader.documents(collection)


def test_a_verdict_of_one_gateway_counts_at_the_other(tmp_path: Path, model: ScriptedModel) -> None:
    with two(tmp_path / "home", model, ", cache: 600") as (first, second):
        assert ask(first) is Outcome.ALLOW
        run = last(first)["runs"]
        assert ask(second) is Outcome.ALLOW
        assert (last(second)["reused"], last(second)["runs"]) == (1, run)
        assert len(model.asked) == 1
        ask(second, text="another")
        assert len(model.asked) == 2


def test_a_no_is_used_again_with_its_words(tmp_path: Path, model: ScriptedModel) -> None:
    model.script = lambda _: BAD
    with two(tmp_path / "home", model, ", cache: 600") as (first, second):
        said = [one.gate.decide(ToolCall(tool="write_note", arguments={"a": 1})).message for one in (first, second)]
        assert said[0] == said[1]
        assert BAD["reasoning"] in said[0]
        assert len(model.asked) == 1


def test_a_verdict_ends_with_its_time_and_with_the_payload_that_holds_it(tmp_path: Path, model: ScriptedModel) -> None:
    with two(tmp_path / "home", model, ", cache: 600") as (first, second):
        ask(first)
        (kept,) = documents(first, "judge-verdicts")
        body = orjson.loads(kept.body)

        def erase(transaction: Transaction) -> tuple[Draft, ...]:
            entry = transaction.entry_by_id(body["receipt"])
            assert entry is not None
            assert transaction.erase_payload(entry.index)
            return ()

        first.ledger.append(Unit(apply=erase))
        ask(second)
        assert len(model.asked) == 2
        ask(first)
        assert len(model.asked) == 2
        (kept,) = documents(first, "judge-verdicts")
        over = structs.replace(
            kept, version=kept.version + 1, body=orjson.dumps({**orjson.loads(kept.body), "until": 1})
        )

        def age(transaction: Transaction) -> tuple[Draft, ...]:
            transaction.put_document(over)
            return ()

        first.ledger.append(Unit(apply=age))
        ask(second)
        assert len(model.asked) == 3


def test_a_ceiling_holds_over_gateways(tmp_path: Path, model: ScriptedModel) -> None:
    more = "judging: {ceilings: {agent: {tokens: 200}}}\n"
    with two(tmp_path / "home", model, more=more) as (first, second):
        assert [ask(one, n=n) for n, one in enumerate((first, second))] == [Outcome.ALLOW] * 2
        assert [ask(one, n=9) for one in (first, second)] == [Outcome.REQUIRE_APPROVAL] * 2
        assert last(second)["cause"] == "ceiling"
        assert len(model.asked) == 2


def test_denied_variants_are_counted_over_gateways_for_five_minutes(tmp_path: Path, model: ScriptedModel) -> None:
    model.script = lambda _: BAD
    with two(tmp_path / "home", model) as (first, second):
        for number in range(10):
            assert ask((first, second)[number % 2], n=number) is Outcome.BLOCK
        asked = len(model.asked)
        for running in (first, second):
            assert ask(running, n=99) is Outcome.BLOCK
            assert last(running)["cause"] == "probing"
        assert len(model.asked) == asked
        later = DeployedGate(
            replace(first.gate.parts, clock=lambda: system_clock() + 301_000_000), first.gate.principal
        )
        later.decide(ToolCall(tool="write_note", arguments={"n": 100}))
        assert (last(first)["cause"], len(model.asked)) == ("score", asked + 1)
        later._judging.close()
        assert ask(second, n=101) is Outcome.BLOCK
        assert last(second)["cause"] == "score"


def test_what_no_longer_counts_is_forgotten(tmp_path: Path, model: ScriptedModel) -> None:
    with two(tmp_path / "home", model, ", cache: 600") as (first, _):
        many = [Document(collection="judge-denied", key=f"k{n}", version=1, body=b'{"until":1}') for n in range(1_200)]

        def put(transaction: Transaction) -> tuple[Draft, ...]:
            for document in many:
                transaction.put_document(document)
            return ()

        first.ledger.append(Unit(apply=put))
        ask(first)
        until = time.monotonic() + 120
        while documents(first, "judge-denied"):
            assert time.monotonic() < until
            time.sleep(0.05)
        assert len(documents(first, "judge-verdicts")) == 1
