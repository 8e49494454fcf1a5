// Package langchain puts tools of langchaingo behind an Aegis gateway.
//
// A wrapped tool is decided where its body runs, on the text that it is called with; a refusal is the tool's result, so
// that the agent goes on. Tools that are not wrapped run undecided: wrap the whole list that the agent is given.
package langchain

import (
	"context"
	"encoding/json"

	aegis "github.com/aegis-guard/aegis/sdk/go"
	"github.com/tmc/langchaingo/tools"
)

type tool struct {
	tools.Tool
	guard *aegis.Guard
}

// Tools wraps every tool of a list.
func Tools(guard *aegis.Guard, list ...tools.Tool) []tools.Tool {
	wrapped := make([]tools.Tool, len(list))
	for i, one := range list {
		wrapped[i] = &tool{Tool: one, guard: guard}
	}
	return wrapped
}

// Call decides, runs what was decided on, and gives what may be seen of the result.
//
// The text is the argument `input`; where it is a JSON object, as tool calling models write it, that is the arguments.
func (t *tool) Call(ctx context.Context, input string) (string, error) {
	var given any = map[string]string{"input": input}
	object := json.RawMessage(input)
	written, err := aegis.CanonicalJSON(object)
	structured := err == nil && written[0] == '{'
	if structured {
		given = object
	}
	attempt := aegis.Attempt{Tool: t.Name(), Arguments: given}
	return t.guard.RunText(ctx, attempt, func(ctx context.Context, arguments json.RawMessage) (string, error) {
		if structured {
			return t.Tool.Call(ctx, string(arguments))
		}
		var decided struct{ Input string }
		if err := json.Unmarshal(arguments, &decided); err != nil {
			return "", err
		}
		return t.Tool.Call(ctx, decided.Input)
	})
}
