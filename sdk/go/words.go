package aegis

import "slices"

// Outcome says what happens to a call, from least to most restrictive.
type Outcome string

// The outcomes of a decision.
const (
	Allow           Outcome = "allow"
	Sanitize        Outcome = "sanitize"
	RequireApproval Outcome = "require_approval"
	Block           Outcome = "block"
)

// Verdict is the axis of evidence: a call that could not be evaluated is never called compliant.
type Verdict string

// The verdicts of a decision.
const (
	Compliant            Verdict = "compliant"
	InsufficientEvidence Verdict = "insufficient_evidence"
	Violation            Verdict = "violation"
)

// Risk is the tier of a call.
type Risk string

// The tiers of risk.
const (
	RiskLow      Risk = "low"
	RiskMedium   Risk = "medium"
	RiskHigh     Risk = "high"
	RiskCritical Risk = "critical"
)

// Reason says why a call was not simply allowed; the set is closed, and safe to show to an agent.
type Reason string

// The reasons that this package gives itself, and those that it looks at.
const (
	ReasonNone                 Reason = "none"
	ReasonConflict             Reason = "conflict"
	ReasonRateLimited          Reason = "rate_limited"
	ReasonSchemaInvalid        Reason = "schema_invalid"
	ReasonInsufficientEvidence Reason = "insufficient_evidence"
	ReasonUnavailable          Reason = "unavailable"
)

var (
	outcomes = []Outcome{Allow, Sanitize, RequireApproval, Block}
	verdicts = []Verdict{Compliant, InsufficientEvidence, Violation}
	risks    = []Risk{RiskLow, RiskMedium, RiskHigh, RiskCritical}
	// A gateway that says another word than these is of a later version, and its answer is a refusal.
	reasons = []Reason{
		"none", "policy_denied", "unregistered_tool", "risk_ceiling", "irreversible", "schema_invalid",
		"attack_detected", "sensitive_data", "exfiltration", "scope_violation", "budget_exhausted", "rate_limited",
		"revoked", "insufficient_evidence", "judge_rejected", "judge_failed", "approval_required", "approval_denied",
		"approval_expired", "approval_cancelled", "chain_blocked", "proof_invalid", "mission_invalid", "tool_changed",
		"postcondition_failed", "conflict", "anomaly", "unavailable", "untrusted_value", "unlicensed", "deferred", "loop",
	}
)

// The sentences of refusals that are made here; all others come with the gateway's decision.
var sentences = map[Reason]string{
	ReasonConflict:             "this call id was already used for another call",
	ReasonRateLimited:          "too many calls in a short time; try again later",
	ReasonSchemaInvalid:        "the arguments do not have the shape that this tool requires",
	ReasonInsufficientEvidence: "the call could not be evaluated as it stands; resolve every argument and try again",
	ReasonUnavailable:          "the call could not be checked or recorded, so it was not made; try again later",
}

func wordOf[T ~string](known []T, text string) (T, bool) {
	at := slices.Index(known, T(text))
	if at < 0 {
		return "", false
	}
	return known[at], true
}
