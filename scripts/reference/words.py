"""The closed sets of words: outcomes, verdicts, reasons, categories, tiers, effects, roles."""

from __future__ import annotations

from typing import Final, get_args

from aegis.core.breaks import MEANING, BreakKind
from aegis.core.outcome import EFFECTS, MESSAGES, ROLES, Category, EvidencePolicy, Outcome, Reason, Risk, Verdict
from reference.markdown import page, table

OUTCOMES: Final = {
    Outcome.ALLOW: "the call runs as it is",
    Outcome.SANITIZE: "the call runs with the `arguments` of the decision instead of its own",
    Outcome.REQUIRE_APPROVAL: "a person has to approve; the same call made again asks what came of it",
    Outcome.BLOCK: "the call does not run",
}
VERDICTS: Final = {
    Verdict.COMPLIANT: "everything that had to be looked at was looked at, and nothing is wrong",
    Verdict.INSUFFICIENT_EVIDENCE: "something could not be evaluated; `insufficient_evidence` says what happens then",
    Verdict.VIOLATION: "something is wrong",
}
EVIDENCE: Final[dict[str, str]] = {
    "fail-closed": "what cannot be evaluated is blocked",
    "require-approval": "a person decides",
    "defer": "it waits until what is missing is there; time blocks it",
    "fail-open-with-attestation": "it runs, and its receipt says for ever that evidence was missing",
}
REASONS: Final = {
    Reason.NONE: "nothing restricts the call",
    Reason.POLICY_DENIED: "a policy, a credential's limits or a bound of the configuration",
    Reason.UNREGISTERED_TOOL: "the tool is not registered and `registry.allow_unregistered` does not let it pass",
    Reason.RISK_CEILING: "the tier is above `registry.max_allowed_tier`, or critical",
    Reason.IRREVERSIBLE: "irreversible and at or above `registry.escalation_threshold`",
    Reason.SCHEMA_INVALID: "arguments that do not fit a JSON Schema",
    Reason.UNTRUSTED_VALUE: "a value that only what was read names",
    Reason.UNLICENSED: "a deed that the user's words do not ask for",
    Reason.DEFERRED: "evidence that is still to come",
    Reason.ATTACK_DETECTED: "a detector rule of an attack",
    Reason.SENSITIVE_DATA: "secrets or personal data on their way out",
    Reason.EXFILTRATION: "data sent where it must not go",
    Reason.SCOPE_VIOLATION: "outside of what a mission covers",
    Reason.BUDGET_EXHAUSTED: "a budget is used up",
    Reason.RATE_LIMITED: "too many calls in the window; HTTP says 429 with `Retry-After`",
    Reason.REVOKED: "an operator stopped the agent",
    Reason.INSUFFICIENT_EVIDENCE: "evidence is missing and the evidence policy does not let that pass",
    Reason.JUDGE_REJECTED: "a judge's review",
    Reason.JUDGE_FAILED: "a judge that could not finish",
    Reason.APPROVAL_REQUIRED: "the tool always asks",
    Reason.APPROVAL_DENIED: "a person said no",
    Reason.APPROVAL_EXPIRED: "nobody answered in time, or an approved call was not made within the hour",
    Reason.APPROVAL_CANCELLED: "the approval was withdrawn",
    Reason.CHAIN_BLOCKED: "an earlier result of the chain",
    Reason.PROOF_INVALID: "a proof of possession",
    Reason.MISSION_INVALID: "a mission",
    Reason.TOOL_CHANGED: "a pinned tool is another now",
    Reason.LOOP: "the guard of loops",
    Reason.POSTCONDITION_FAILED: "a postcondition of a result",
    Reason.CONFLICT: "the call id was used for another call; HTTP says 409",
    Reason.ANOMALY: "unlike what the agent usually does",
    Reason.UNAVAILABLE: "a guard, the store or the gateway failed; HTTP says 503 where the log cannot be written",
}
CATEGORIES: Final[dict[str, str]] = {
    "sql_injection": "text that changes the meaning of an SQL statement",
    "path_traversal": "a path that leaves the place it was meant for",
    "shell_injection": "text that makes a shell run something else",
    "prompt_injection": "instructions to the model where data was expected",
    "sensitive_file": "files that hold keys, passwords or accounts",
    "data_exfiltration": "data on its way out by a side door",
    "pii": "personal data",
    "secret": "keys, tokens and passwords",
    "ssrf": "an address inside the network, or of cloud metadata",
    "destructive": "an effect that destroys",
    "supply_chain": "code or packages from where they should not come",
    "code_injection": "code where data was expected",
    "deserialization": "data that runs when it is read",
    "obfuscation": "text that hides what it is",
    "resource_limit": "a bound that was exceeded",
    "policy": "an operator's policy",
    "scope": "a mission's scope",
    "budget": "a budget",
    "rate": "a rate",
    "anomaly": "unusual behaviour",
    "dataflow": "data that flows from where it must not flow",
}
EFFECT_WORDS: Final[dict[str, str]] = {
    "read": "reads",
    "write": "changes data",
    "network": "opens connections",
    "exec": "runs code or commands",
    "external_send": "hands data to somebody outside",
}
ROLE_WORDS: Final[dict[str, str]] = {
    "agent": "asks for decisions and hands in results",
    "tool": "verifies permits",
    "approver": "resolves held calls",
    "auditor": "reads receipts, findings and the log",
    "issuer": "issues missions",
    "admin": "agents and configuration",
}


def render() -> str:
    """The page; raises `KeyError` where a word of the code has no meaning here."""
    risks = ((risk.word, str(risk.value)) for risk in Risk)
    return page(
        "Words",
        "Every closed set of words on the wire. Reasons and categories that no guard of this version gives are "
        "reserved, so that a client can know all of them.",
        "## Outcomes\n\nFrom least to most restrictive; the most restrictive wins.",
        table(["`decision`", "means"], ((f"`{one.word}`", OUTCOMES[one]) for one in Outcome)),
        "## Verdicts",
        table(["`verdict`", "means"], ((f"`{one.word}`", VERDICTS[one]) for one in Verdict)),
        "## Evidence policies",
        table(["`insufficient_evidence`", "means"], ((f"`{one}`", EVIDENCE[one]) for one in get_args(EvidencePolicy))),
        "## Reasons\n\nThe sentence is what an agent is told: always the same, and never a word of its call.",
        table(
            ["`reason`", "because of", "the agent is told"],
            ((f"`{one.value}`", REASONS[one], MESSAGES[one]) for one in Reason),
        ),
        "## Categories of findings",
        table(["`category`", "is about"], ((f"`{one}`", CATEGORIES[one]) for one in get_args(Category))),
        "## Risk tiers",
        table(["`risk`", "tier"], ((f"`{word}`", number) for word, number in risks)),
        "## Effects",
        table(["effect", "the call"], ((f"`{one}`", EFFECT_WORDS[one]) for one in EFFECTS)),
        "## Roles of credentials",
        table(["role", "may"], ((f"`{one}`", ROLE_WORDS[one]) for one in ROLES)),
        "## Breaks of a log\n\nWhat `aegis log verify` names, with the line, the index and the receipt of the first.",
        table(["`break`", "means"], ((f"`{one}`", MEANING[one]) for one in get_args(BreakKind))),
    )
