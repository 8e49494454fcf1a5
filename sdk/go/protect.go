package aegis

import (
	"bytes"
	"context"
	"encoding/json"
	"reflect"
)

// ToolOptions say more about a protected function.
type ToolOptions struct {
	// Server is the namespace that is part of the tool's identity.
	Server string
	// WantPermit asks for a permit, which the body finds with [PermitOf].
	WantPermit bool
}

// Protect wraps a function as a tool: it is decided before its body runs, its result is observed after.
//
// The body gets a fresh decode of the bytes that were decided on, so A is a type that encoding/json reads and writes
// without loss. A refused call, a withheld result and a withheld error are a *Blocked; another error of the body passes
// as it is.
func Protect[A, R any](
	guard *Guard, tool string, body func(context.Context, A) (R, error), options ...ToolOptions,
) func(context.Context, A) (R, error) {
	var chosen ToolOptions
	for _, one := range options {
		chosen = one
	}
	return func(ctx context.Context, given A) (R, error) {
		var none R
		enforced := guard.Enforce(ctx, Attempt{
			Tool: tool, Server: chosen.Server, WantPermit: chosen.WantPermit, Arguments: given,
		})
		if !enforced.Allowed() {
			return none, blocked(enforced, enforced.Refusal())
		}
		var arguments A
		if err := decodeAll(enforced.Arguments, &arguments); err != nil {
			return none, misfit(enforced)
		}
		result, err := body(enforced.Context(ctx), arguments)
		if err != nil {
			if seen := guard.ObserveFailure(ctx, enforced, err); seen.Withheld() || seen.Replaced != nil {
				return none, withheldBy(enforced, seen)
			}
			return none, err
		}
		seen := guard.Observe(ctx, enforced, result)
		switch {
		case seen.Withheld():
			return none, withheldBy(enforced, seen)
		case seen.Replaced == nil:
			return result, nil
		}
		var changed R
		if err := decodeAll(seen.Replaced, &changed); err != nil {
			return none, withheldBy(enforced, Observed{Decision: withheld(ReasonSchemaInvalid), Notice: notForType})
		}
		return changed, nil
	}
}

const notForType = "the result was withheld: what may be seen of it does not have the type of the tool's results"

// decodeAll decodes canonical JSON into a value that takes all of it: what would be dropped would not run as decided.
func decodeAll(data []byte, into any) error {
	decoder := json.NewDecoder(bytes.NewReader(data))
	decoder.UseNumber() // a number in an `any` keeps its digits
	decoder.DisallowUnknownFields()
	if err := decoder.Decode(into); err != nil {
		return err
	}
	again, err := Canonical(reflect.ValueOf(into).Elem().Interface())
	if err != nil {
		return err
	}
	if !bytes.Equal(again, data) {
		return errBadAnswer
	}
	return nil
}

func blocked(enforced Enforced, refusal string) error {
	return &Blocked{Tool: enforced.Attempt.Tool, Decision: enforced.Decision, Refusal: refusal}
}

// misfit is the refusal of a call whose arguments the function cannot take.
func misfit(enforced Enforced) error {
	refusal := *enforced.Decision
	refusal.Outcome, refusal.Reason, refusal.Message = Block, ReasonSchemaInvalid, sentences[ReasonSchemaInvalid]
	enforced.Decision = &refusal
	return blocked(enforced, enforced.Refusal())
}

func withheldBy(enforced Enforced, seen Observed) error {
	refusal := *enforced.Decision
	refusal.Outcome, refusal.Reason, refusal.Message = Block, seen.Decision.Reason, seen.Decision.Message
	notice := seen.Notice
	if notice == "" {
		notice = "the tool failed, and what it said may not be seen as it is, so it was withheld"
	}
	return &Blocked{Tool: enforced.Attempt.Tool, Decision: &refusal, Refusal: notice}
}

// RunText runs a tool that takes JSON arguments and gives text, as most libraries have them: a refusal and what may be
// seen of a result are text for the model, and only an error that the body itself gave, and that may be seen as it is,
// is an error.
func (g *Guard) RunText(
	ctx context.Context, attempt Attempt, body func(context.Context, json.RawMessage) (string, error),
) (string, error) {
	enforced := g.Enforce(ctx, attempt)
	if !enforced.Allowed() {
		return enforced.Refusal(), nil
	}
	text, err := body(enforced.Context(ctx), enforced.Arguments)
	if err != nil {
		seen := g.ObserveFailure(ctx, enforced, err)
		if seen.Withheld() || seen.Replaced != nil {
			return seen.Text(err.Error()), nil
		}
		return "", err
	}
	return g.Observe(ctx, enforced, text).Text(text), nil
}
