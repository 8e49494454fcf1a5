// Package adk puts tools of the Agent Development Kit for Go behind an Aegis gateway.
//
// A wrapped tool is decided where its body runs, on the arguments that it runs with; a refusal is the tool's result, so
// that the agent goes on. Tools that are not wrapped run undecided: wrap every list and every set that an agent is given.
package adk

import (
	"context"
	"encoding/json"
	"errors"

	aegis "github.com/aegis-guard/aegis/sdk/go"
	"google.golang.org/adk/agent"
	"google.golang.org/adk/model"
	"google.golang.org/adk/tool"
	"google.golang.org/genai"
)

// What the kit asks of tools that run here, and of those that prepare a request; both are internal to it.
type function interface {
	tool.Tool
	Declaration() *genai.FunctionDeclaration
	Run(ctx tool.Context, args any) (map[string]any, error)
}

type preparing interface {
	ProcessRequest(ctx tool.Context, request *model.LLMRequest) error
}

// Tools wraps every tool of a list; those that a provider runs are as they were.
func Tools(guard *aegis.Guard, list ...tool.Tool) []tool.Tool {
	wrapped := make([]tool.Tool, len(list))
	for i, one := range list {
		wrapped[i] = one
		if body, ok := one.(function); ok {
			wrapped[i] = &guarded{function: body, guard: guard}
		}
	}
	return wrapped
}

// Toolset wraps every tool that a set has in a run, those of an MCP server among them.
func Toolset(guard *aegis.Guard, set tool.Toolset) tool.Toolset {
	return &toolset{Toolset: set, guard: guard}
}

type toolset struct {
	tool.Toolset
	guard *aegis.Guard
}

// Tools gives the set's tools, wrapped.
func (s *toolset) Tools(ctx agent.ReadonlyContext) ([]tool.Tool, error) {
	list, err := s.Toolset.Tools(ctx)
	if err != nil {
		return nil, err
	}
	return Tools(s.guard, list...), nil
}

type guarded struct {
	function
	guard *aegis.Guard
}

// ProcessRequest lets the tool prepare the request, and stands in its place there: what a request names is what runs.
func (g *guarded) ProcessRequest(ctx tool.Context, request *model.LLMRequest) error {
	if one, ok := g.function.(preparing); ok {
		if err := one.ProcessRequest(ctx, request); err != nil {
			return err
		}
	}
	if request.Tools == nil {
		request.Tools = map[string]any{}
	}
	request.Tools[g.Name()] = g
	return nil
}

// Run decides, runs what was decided on, and gives what may be seen of the result.
func (g *guarded) Run(ctx tool.Context, args any) (map[string]any, error) {
	enforced := g.guard.Enforce(ctx, aegis.Attempt{Tool: g.Name(), CallID: ctx.FunctionCallID(), Arguments: args})
	if !enforced.Allowed() {
		return failed(enforced.Refusal()), nil
	}
	var decided map[string]any
	if err := json.Unmarshal(enforced.Arguments, &decided); err != nil {
		return failed("the call was not run: its arguments are no object"), nil
	}
	result, err := g.function.Run(&called{Context: ctx, values: enforced.Context(ctx)}, decided)
	// The kit asks its own user first; the body runs when the same call comes again.
	if errors.Is(err, tool.ErrConfirmationRequired) || errors.Is(err, tool.ErrConfirmationRejected) {
		return result, err
	}
	if err != nil {
		if seen := g.guard.ObserveFailure(ctx, enforced, err); seen.Withheld() || seen.Replaced != nil {
			return failed(seen.Text(err.Error())), nil
		}
		return nil, err
	}
	seen := g.guard.Observe(ctx, enforced, result)
	switch {
	case seen.Withheld():
		return failed(seen.Notice), nil
	case seen.Replaced == nil:
		return result, nil
	}
	var changed map[string]any
	if err := json.Unmarshal(seen.Replaced, &changed); err != nil {
		return failed("the result was withheld: what may be seen of it is no result of a tool"), nil
	}
	return changed, nil
}

// called is the context of a body, with the permit of its call.
type called struct {
	tool.Context
	values context.Context
}

// Value gives what the call's own context holds.
func (c *called) Value(key any) any { return c.values.Value(key) }

func failed(text string) map[string]any { return map[string]any{"error": text} }
