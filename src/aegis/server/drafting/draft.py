"""One draft: from plain words to a candidate configuration with its test cases.

(1) the request is on record, with who made it, before anything leaves
(2) the model is asked; its answer is untrusted text of a strict shape
(3) the proposed policy is written into the text in force
(4) the candidate compiles as any configuration does, and says nothing but what is in force and this one policy:
    a policy that is a schema can only refuse or hold, so that no draft loosens anything
(5) every test case is decided by both; what the model expects counts for nothing
"""

from __future__ import annotations

import asyncio
import os
from copy import deepcopy
from typing import Any, Final

import orjson

from aegis.audit.writer import Unit
from aegis.core.digest import SALT_BYTES, payload_commitment
from aegis.core.receipt import Draft
from aegis.egress import Egress, EgressPolicy
from aegis.errors import ConfigError, ForeignAnswer, InvalidCall, ModelFailed, Problem
from aegis.gate.ids import new_id
from aegis.models.client import ask
from aegis.models.values import Endpoint
from aegis.pipeline.compile import Policy
from aegis.pipeline.document import plain
from aegis.pipeline.reload import InForce
from aegis.pipeline.settings_models import EndpointSettings
from aegis.server.config_text import text_in_force, with_policy
from aegis.server.configuration import problem_of
from aegis.server.drafting.answer import Proposal, read_proposal
from aegis.server.drafting.asking import messages
from aegis.server.services import Services
from aegis.server.trying import tried

MAX_BYTES: Final = 262_144  # bytes of the provider's whole answer


async def draft_policy(services: Services, wish: str, *, by: str) -> dict[str, Any]:
    """The draft: policy, candidate text, problems by line, and what became of each case.

    Raises `InvalidCall`: 404 without a model, 502 where it does not answer as it was asked, 409 where the file is not
    what is in force.
    """
    settings = services.policy.config.settings
    model = settings.drafting.model
    if model is None:
        raise InvalidCall(
            "no model is configured to draft policies",
            code="not_found",
            hint="it stands in `drafting.model`",
            status=404,
        )
    # (1)
    await services.gate.arecord(_asked_for(wish, model=model.name, by=by, digest=services.policy.current.digest))
    # (2)
    try:
        answer = await _ask(model, messages(settings, wish), seconds=settings.drafting.timeout)
        proposal = read_proposal(answer)
    except (ModelFailed, ForeignAnswer) as error:
        raise InvalidCall(
            f"the model drafted nothing: {error}", code="model_failed", hint="try again, in other words", status=502
        ) from error
    return await asyncio.to_thread(_drafted, services, proposal)


async def _ask(model: EndpointSettings, conversation: list[dict[str, Any]], *, seconds: float) -> str:
    endpoint = Endpoint(api=model.api, url=model.url, name=model.name, key=model.key or "", max_tokens=model.max_tokens)
    private = frozenset({model.url.partition("://")[2].partition("/")[0].lower()} if model.private else ())
    async with Egress(EgressPolicy(private=private)) as egress:
        answer = await ask(egress, endpoint, conversation, (), seconds=seconds, max_bytes=MAX_BYTES)
    return answer.text


def _drafted(services: Services, proposal: Proposal) -> dict[str, Any]:
    holder = services.policy
    before = InForce(config=holder.config, policy=holder.current)
    drafted: dict[str, Any] = {
        "base": before.policy.digest, "digest": None, "policy": proposal.policy, "config": None, "valid": False,
        "explanation": proposal.explanation, "problems": [], "cases": [],
    }  # fmt: skip
    if proposal.policy is None:
        return drafted | {"problems": [_problem("the model says that no policy can say this")]}
    # (3)
    text = with_policy(text_in_force(holder), proposal.policy)
    drafted["config"] = text
    # (4)
    try:
        after = holder.check(text)
    except ConfigError as error:
        return drafted | {"problems": [problem_of(one) for one in error.problems[:20]]}
    meant = plain(before.config.node)
    meant["policies"] = [proposal.policy, *meant["policies"]]
    if plain(after.config.node) != meant:
        raise InvalidCall(
            "the file does not say what is in force", code="conflict", hint="reload it, or draft again", status=409
        )
    # (5)
    name, now = proposal.policy["name"], services.clock()
    cases = [_tried(case, name, before.policy, after.policy, now) for case in proposal.cases]
    if not any(case["caught"] for case in cases):
        problem = _problem("the policy catches none of its cases: it would change nothing")
        return drafted | {"problems": [problem], "cases": cases}
    return drafted | {"valid": True, "digest": after.policy.digest, "cases": cases}


def _tried(case: dict[str, Any], name: str, before: Policy, after: Policy, now: int) -> dict[str, Any]:
    """One case under both policies; `caught` is what the drafted policy itself says of it."""
    call = {"tool": case["tool"], "arguments": case["arguments"]}
    was, now_is = (tried(policy, deepcopy(call), now=now).combined for policy in (before, after))
    caught = any(one.guard == "schema" and one.rule == name for one in now_is.findings)
    return {
        **call,
        "why": case.get("why", ""),
        "expected": case["expect"],
        "caught": caught,
        "holds": caught == (case["expect"] == "caught"),
        "before": {"decision": was.outcome.word, "reason": was.reason.value},
        "after": {"decision": now_is.outcome.word, "reason": now_is.reason.value},
    }


def _problem(message: str) -> dict[str, Any]:
    return problem_of(Problem(message=message))


def _asked_for(wish: str, *, model: str, by: str, digest: str) -> Unit:
    """The receipt of a request; the words lie beside the log, sealed and erasable."""
    salt, payload = os.urandom(SALT_BYTES), orjson.dumps({"wish": wish, "model": model})
    members = {
        "kind": "config",
        "receipt_id": new_id(),
        "principal": by,
        "policy_digest": digest,
        "action": "draft",
        "payload_commitment": payload_commitment(salt, payload),
    }
    return Unit(drafts=(Draft(members=members, payload=payload, salt=salt),))
