// Package anthropic puts what anthropic-sdk-go runs and hands out behind an Aegis gateway.
//
// [Tools] wraps the tools of a tool runner: each is decided where its body runs, on its final arguments. [Middleware]
// judges the calls in a model's answer before the program sees them, for programs that run tools themselves.
package anthropic

import (
	"context"
	"encoding/json"

	aegis "github.com/aegis-guard/aegis/sdk/go"
	"github.com/aegis-guard/aegis/sdk/go/models"
	"github.com/anthropics/anthropic-sdk-go"
	"github.com/anthropics/anthropic-sdk-go/option"
)

// Middleware judges the calls of every answer of the client that it is given to; see [models.Middleware].
func Middleware(guard *aegis.Guard) option.RequestOption {
	return option.WithMiddleware(models.Middleware(guard))
}

type tool struct {
	anthropic.BetaTool
	guard *aegis.Guard
}

// Tools wraps every tool that a tool runner is given.
func Tools(guard *aegis.Guard, list ...anthropic.BetaTool) []anthropic.BetaTool {
	wrapped := make([]anthropic.BetaTool, len(list))
	for i, one := range list {
		wrapped[i] = &tool{BetaTool: one, guard: guard}
	}
	return wrapped
}

// Execute decides, runs what was decided on, and gives what may be seen of the result.
func (t *tool) Execute(
	ctx context.Context, input json.RawMessage,
) ([]anthropic.BetaToolResultBlockParamContentUnion, error) {
	enforced := t.guard.Enforce(ctx, aegis.Attempt{Tool: t.Name(), Arguments: input})
	if !enforced.Allowed() {
		return said(enforced.Refusal()), nil
	}
	blocks, err := t.BetaTool.Execute(enforced.Context(ctx), enforced.Arguments)
	if err != nil {
		if seen := t.guard.ObserveFailure(ctx, enforced, err); seen.Withheld() || seen.Replaced != nil {
			return said(seen.Text(err.Error())), nil
		}
		return nil, err
	}
	seen := t.guard.Observe(ctx, enforced, blocks)
	switch {
	case seen.Withheld():
		return said(seen.Notice), nil
	case seen.Replaced == nil:
		return blocks, nil
	}
	var changed []anthropic.BetaToolResultBlockParamContentUnion
	if err := json.Unmarshal(seen.Replaced, &changed); err != nil {
		return said("the result was withheld: what may be seen of it is no content"), nil
	}
	return changed, nil
}

func said(text string) []anthropic.BetaToolResultBlockParamContentUnion {
	return []anthropic.BetaToolResultBlockParamContentUnion{{OfText: &anthropic.BetaTextBlockParam{Text: text}}}
}
