package aegis

import (
	"encoding/json"
	"errors"
	"strings"
)

// Receipt says where the log keeps a decision.
type Receipt struct {
	ID       string
	Index    int64
	LeafHash string
}

// Approval is the approval that a held call waits for; ExpiresAt is RFC 3339, UTC.
type Approval struct {
	ID, ExpiresAt string
	// Kind is "approval" or "deferral", WaitingFor what a deferral waits for, where the gateway says so.
	Kind       string
	WaitingFor []string
}

// Decision is the gateway's answer to a call, or the refusal that stands for one.
type Decision struct {
	Outcome       Outcome
	Verdict       Verdict
	Risk          Risk
	Reason        Reason
	Message       string // one safe sentence for the agent
	DecisionID    string
	CallID        string
	RequestDigest string
	CallDigest    string
	PolicyDigest  string
	Salt          string
	// Arguments are canonical JSON, present only with Sanitize: what must be executed instead.
	Arguments json.RawMessage
	Approval  *Approval
	Permit    string
	Receipt   *Receipt
	Missing   []string
	// RetryAfter is the number of seconds after which the gateway wants to be asked again; 0 where it says nothing.
	RetryAfter int
}

// Allowed reports whether the tool may run now, with Arguments if there are any.
func (d *Decision) Allowed() bool { return d.Outcome == Allow || d.Outcome == Sanitize }

// ResultDecision is the gateway's answer to a result; Result is canonical JSON, present only with Sanitize.
type ResultDecision struct {
	Outcome Outcome
	Verdict Verdict
	Reason  Reason
	Message string
	Result  json.RawMessage
	Receipt *Receipt
}

// Allowed reports whether the model may see the result, or Result in its place with Sanitize.
func (d *ResultDecision) Allowed() bool { return d.Outcome == Allow || d.Outcome == Sanitize }

// errBadAnswer is an answer that the contract does not allow for this call.
var errBadAnswer = errors.New("the gateway's answer is not one that the contract allows for this call")

// refused is the decision that stands for an answer that was not to be had.
func refused(call *asked, reason Reason, wait int) *Decision {
	return &Decision{
		Outcome: Block, Verdict: InsufficientEvidence, Risk: RiskHigh, Reason: reason, Message: sentences[reason],
		CallID: call.call.CallID, RequestDigest: call.digest, CallDigest: call.digest, RetryAfter: wait,
	}
}

func withheld(reason Reason) *ResultDecision {
	return &ResultDecision{Outcome: Block, Verdict: InsufficientEvidence, Reason: reason, Message: sentences[reason]}
}

// members reads what an answer must hold; the first thing that is wrong with it stays.
type members struct {
	object jsonObject
	wrong  bool
}

func (m *members) text(name string) string {
	text, ok := m.object.text(name)
	m.wrong = m.wrong || !ok
	return text
}

func word[T ~string](m *members, name string, known []T) T {
	found, ok := wordOf(known, m.text(name))
	m.wrong = m.wrong || !ok
	return found
}

// optional gives a member that may be absent or null, and must be of the type T otherwise.
func optional[T any](m *members, name string) (T, bool) {
	var none T
	value, ok := m.object.find(name)
	if !ok || value == nil {
		return none, false
	}
	found, ok := value.(T)
	m.wrong = m.wrong || !ok
	return found, ok
}

func (m *members) receipt() *Receipt {
	object, ok := optional[jsonObject](m, "receipt")
	if !ok {
		return nil
	}
	inner := members{object: object}
	index, whole := object.whole("index")
	receipt := &Receipt{ID: inner.text("id"), Index: index, LeafHash: inner.text("leaf_hash")}
	m.wrong = m.wrong || inner.wrong || !whole || index < 0
	return receipt
}

func (m *members) approval() *Approval {
	object, ok := optional[jsonObject](m, "approval")
	if !ok {
		return nil
	}
	inner := members{object: object}
	approval := &Approval{ID: inner.text("id"), ExpiresAt: inner.text("expires_at"), WaitingFor: inner.texts("waiting_for")}
	approval.Kind, _ = optional[string](&inner, "kind")
	// The id becomes part of a request's target.
	strange := strings.ContainsFunc(approval.ID, func(char rune) bool {
		return !strings.ContainsRune("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-_.~", char)
	})
	m.wrong = m.wrong || inner.wrong || strange || approval.ID == "" || len(approval.ID) > 200
	return approval
}

func (m *members) texts(name string) []string {
	items, _ := optional[[]any](m, name)
	var texts []string
	for _, item := range items {
		text, ok := item.(string)
		m.wrong = m.wrong || !ok
		texts = append(texts, text)
	}
	return texts
}

func (m *members) guards() {
	items, _ := optional[[]any](m, "guards")
	for _, item := range items {
		object, ok := item.(jsonObject)
		if !ok {
			m.wrong = true
			return
		}
		inner := members{object: object}
		inner.text("guard")
		word(&inner, "outcome", outcomes)
		_, whole := object.whole("us")
		m.wrong = m.wrong || inner.wrong || !whole
	}
}

// readDecision reads the decision in body, of one of the outcomes allowed, on exactly the call that was asked about.
func readDecision(body []byte, call *asked, allowed ...Outcome) (*Decision, error) {
	object, err := readObject(body)
	if err != nil {
		return nil, errBadAnswer
	}
	m := &members{object: object}
	decision := &Decision{
		Outcome: word(m, "decision", outcomes), Verdict: word(m, "verdict", verdicts), Risk: word(m, "risk", risks),
		Reason: word(m, "reason", reasons), Message: m.text("message"), DecisionID: m.text("decision_id"),
		CallID: m.text("call_id"), RequestDigest: m.text("request_digest"), CallDigest: m.text("call_digest"),
		PolicyDigest: m.text("policy_digest"), Salt: m.text("salt"), Approval: m.approval(), Receipt: m.receipt(),
		Missing: m.texts("missing"),
	}
	decision.Permit, _ = optional[string](m, "permit")
	if arguments, ok := optional[jsonObject](m, "arguments"); ok {
		decision.Arguments = appendCanonical(nil, arguments)
	}
	m.guards()
	if m.wrong {
		return nil, errBadAnswer
	}
	if _, ok := wordOf(allowed, string(decision.Outcome)); !ok {
		return nil, errBadAnswer
	}
	if decision.CallID != call.call.CallID || decision.RequestDigest != call.digest {
		return nil, errBadAnswer
	}
	if decision.Outcome == Block {
		return decision, nil
	}
	if decision.Receipt == nil || (decision.Outcome == RequireApproval && decision.Approval == nil) {
		return nil, errBadAnswer
	}
	if decision.Outcome != RequireApproval && !bindsWhatRuns(decision, call) {
		return nil, errBadAnswer
	}
	return decision, nil
}

// bindsWhatRuns reports whether the decision carries the digest of exactly what may run.
func bindsWhatRuns(decision *Decision, call *asked) bool {
	if decision.Outcome == Allow {
		return decision.Arguments == nil && decision.CallDigest == call.digest
	}
	return decision.Arguments != nil &&
		decision.CallDigest == digestOf(call.call.Server, call.call.Tool, decision.Arguments)
}

func readResult(body []byte) (*ResultDecision, error) {
	object, err := readObject(body)
	if err != nil {
		return nil, errBadAnswer
	}
	m := &members{object: object}
	decision := &ResultDecision{
		Outcome: word(m, "decision", outcomes), Verdict: word(m, "verdict", verdicts), Reason: word(m, "reason", reasons),
		Message: m.text("message"), Receipt: m.receipt(),
	}
	result, given := object.find("result")
	if given {
		decision.Result = appendCanonical(nil, result)
	}
	switch {
	case m.wrong, decision.Outcome == RequireApproval, given != (decision.Outcome == Sanitize),
		decision.Allowed() && decision.Receipt == nil:
		return nil, errBadAnswer
	}
	return decision, nil
}
