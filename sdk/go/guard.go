package aegis

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"time"
)

// Decider answers calls and results: a [Client], or a double of one in tests.
type Decider interface {
	Decide(ctx context.Context, call ToolCall) (*Decision, error)
	Wait(ctx context.Context, call ToolCall, held *Decision) (*Decision, error)
	Observe(ctx context.Context, result ToolResult) (*ResultDecision, error)
}

// Attempt is a call that is about to run, with its final arguments: anything whose JSON form is an object.
type Attempt struct {
	Tool      string
	Server    string
	Arguments any
	// CallID is the framework's, if it has one.
	CallID     string
	WantPermit bool
	// Unresolved are JSON pointers to arguments that are not there yet.
	Unresolved []string
}

// Enforced is what becomes of an attempt. Nothing but Arguments may be run, and only if Allowed.
type Enforced struct {
	Attempt  Attempt
	Decision *Decision
	// Arguments are the canonical bytes that were decided on: decode them anew, and run nothing else.
	Arguments json.RawMessage
}

// Allowed reports whether the tool may run now.
func (e Enforced) Allowed() bool { return e.Decision.Allowed() }

// Changed reports whether other arguments than those of the attempt have to be run.
func (e Enforced) Changed() bool { return e.Decision.Outcome == Sanitize }

// Refusal is the sentence that the model is given as the result of a refused call.
func (e Enforced) Refusal() string {
	return fmt.Sprintf("`%s` was not run: %s (reason: %s)", e.Attempt.Tool, e.Decision.Message, e.Decision.Reason)
}

// Context carries the call's permit to what its body calls.
func (e Enforced) Context(ctx context.Context) context.Context {
	if e.Decision.Permit == "" {
		return ctx
	}
	return context.WithValue(ctx, permitKey{}, e.Decision.Permit)
}

// Observed is what the model may see of a result.
type Observed struct {
	Decision *ResultDecision
	// Replaced is canonical JSON to show in the result's place; nil where the result may be shown as it is.
	Replaced json.RawMessage
	// Notice is the sentence to show where nothing of the result may be seen; empty otherwise.
	Notice string
}

// Withheld reports whether nothing of the result may be seen.
func (o Observed) Withheld() bool { return o.Notice != "" }

// Text gives what the model may see of a result that is text.
func (o Observed) Text(given string) string {
	switch {
	case o.Withheld():
		return o.Notice
	case o.Replaced == nil:
		return given
	}
	var text string
	if err := json.Unmarshal(o.Replaced, &text); err != nil {
		return string(o.Replaced)
	}
	return text
}

// Guard decides, waits and observes around tools' bodies; every way in which it can fail is a refusal.
type Guard struct {
	// Decider answers; a Guard without one refuses everything.
	Decider Decider
	// Refuse says that a held call is refused at once; otherwise it waits.
	Refuse bool
	// ApprovalTimeout bounds the wait for an approval; by default it waits as long as the approval lasts.
	ApprovalTimeout time.Duration
	// Log is told why a call could not be decided; by default slog.Default(). Values are never written to it.
	Log *slog.Logger
}

// Enforce leads one attempt to what becomes of it; the call belongs to the session of the context.
func (g *Guard) Enforce(ctx context.Context, attempt Attempt) Enforced {
	if attempt.Arguments == nil {
		attempt.Arguments = json.RawMessage("{}")
	}
	// (1) A snapshot: from here on only these bytes count.
	written, err := Canonical(attempt.Arguments)
	call := ToolCall{
		Tool: attempt.Tool, Server: attempt.Server, Arguments: json.RawMessage(written), CallID: attempt.CallID,
		Session: sessionOf(ctx), WantPermit: attempt.WantPermit, Unresolved: attempt.Unresolved,
	}
	if call.CallID == "" {
		call.CallID = newCallID()
	}
	if err != nil {
		return g.undecided(attempt, call, err)
	}
	// (2) Decide; a call id that stands for another call is replaced, and the call decided anew.
	decision, err := g.decide(ctx, call)
	if err == nil && decision.Reason == ReasonConflict {
		call.CallID = newCallID()
		decision, err = g.decide(ctx, call)
	}
	if err != nil {
		return g.undecided(attempt, call, err)
	}
	// (3) Wait, where it is held.
	if decision.Outcome == RequireApproval && !g.Refuse {
		if decision, err = g.wait(ctx, call, decision); err != nil {
			return g.undecided(attempt, call, err)
		}
	}
	// (4) What is allowed must be what was asked about, to the byte.
	found := Enforced{Attempt: attempt, Decision: decision, Arguments: written}
	if !decision.Allowed() {
		return found
	}
	request := &asked{call: call, arguments: written, digest: digestOf(call.Server, call.Tool, written)}
	if decision.RequestDigest != request.digest || !bindsWhatRuns(decision, request) {
		return g.undecided(attempt, call, errBadAnswer)
	}
	if found.Changed() {
		found.Arguments = decision.Arguments
	}
	return found
}

// EnforceAll leads several attempts of one turn to what becomes of each, in order and at the same time.
func (g *Guard) EnforceAll(ctx context.Context, attempts []Attempt) []Enforced {
	found := make([]Enforced, len(attempts))
	var waiting sync.WaitGroup
	for i, attempt := range attempts {
		waiting.Add(1)
		go func() {
			defer waiting.Done()
			found[i] = g.Enforce(ctx, attempt)
		}()
	}
	waiting.Wait()
	return found
}

// Observe leads the result of an allowed call to what the model may see of it.
func (g *Guard) Observe(ctx context.Context, enforced Enforced, result any) Observed {
	return g.observe(ctx, ToolResult{DecisionID: enforced.Decision.DecisionID, Result: result})
}

// ObserveFailure leads the words of a body's error to what the model may see of them: a further text of the call.
func (g *Guard) ObserveFailure(ctx context.Context, enforced Enforced, failure error) Observed {
	result := ToolResult{DecisionID: enforced.Decision.DecisionID, Result: failure.Error(), Further: true}
	return g.observe(ctx, result)
}

func (g *Guard) observe(ctx context.Context, result ToolResult) Observed {
	// What a tool did is told to the gateway though the caller has gone: the record is not the caller's to cut.
	decision, err := safely(func() (*ResultDecision, error) {
		if g.Decider == nil {
			return nil, errNoDecider
		}
		return g.Decider.Observe(context.WithoutCancel(ctx), result)
	})
	if err != nil {
		g.log().Warn("a result was withheld because it could not be observed", "error", described(err))
		decision = withheld(ReasonUnavailable)
	}
	found := Observed{Decision: decision}
	switch {
	case !decision.Allowed():
		found.Notice = fmt.Sprintf("the result was withheld: %s (reason: %s)", decision.Message, decision.Reason)
	case decision.Outcome == Sanitize:
		found.Replaced = decision.Result
	}
	return found
}

var errNoDecider = errors.New("the guard has no decider")

func (g *Guard) decide(ctx context.Context, call ToolCall) (*Decision, error) {
	return safely(func() (*Decision, error) {
		if g.Decider == nil {
			return nil, errNoDecider
		}
		return g.Decider.Decide(ctx, call)
	})
}

func (g *Guard) wait(ctx context.Context, call ToolCall, held *Decision) (*Decision, error) {
	if g.ApprovalTimeout > 0 {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, g.ApprovalTimeout)
		defer cancel()
	}
	return safely(func() (*Decision, error) { return g.Decider.Wait(ctx, call, held) })
}

// safely makes an error of a panic and of an answer that is none.
func safely[T any](ask func() (*T, error)) (found *T, err error) {
	defer func() {
		if recover() != nil {
			found, err = nil, errors.New("the decider failed")
		}
	}()
	if found, err = ask(); err == nil && found == nil {
		err = errBadAnswer
	}
	return found, err
}

func (g *Guard) undecided(attempt Attempt, call ToolCall, err error) Enforced {
	g.log().Warn("a call was refused because it could not be decided", "tool", attempt.Tool, "error", described(err))
	reason := ReasonUnavailable
	var misuse *InvalidCall
	if errors.As(err, &misuse) && misuse.Status == 422 {
		reason = ReasonSchemaInvalid
	}
	return Enforced{Attempt: attempt, Decision: &Decision{
		Outcome: Block, Verdict: InsufficientEvidence, Risk: RiskHigh, Reason: reason, Message: sentences[reason],
		CallID: call.CallID,
	}}
}

func (g *Guard) log() *slog.Logger {
	if g.Log != nil {
		return g.Log
	}
	return slog.Default()
}

// described gives what may be logged of an error: foreign messages can hold argument values.
func described(err error) string {
	var misuse *InvalidCall
	if errors.As(err, &misuse) {
		return misuse.Message
	}
	return fmt.Sprintf("%T", err)
}
