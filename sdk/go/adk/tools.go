// Package adk puts tools of the Agent Development Kit for Go behind an Aegis gateway.
//
// A wrapped tool is decided where its body runs, on the arguments that it runs with; a refusal is the tool's result, so
// that the agent goes on. Tools that are not wrapped run undecided: wrap every list and every set that an agent is given.
package adk

import (
	"context"
	"encoding/json"
	"errors"
	"iter"
	"maps"
	"strings"

	aegis "github.com/aegis-guard/aegis/sdk/go"
	"google.golang.org/adk/v2/agent"
	"google.golang.org/adk/v2/model"
	"google.golang.org/adk/v2/tool"
	"google.golang.org/genai"
)

// What the kit asks of tools that run here, and of those that prepare a request; both are internal to it.
type function interface {
	tool.Tool
	Declaration() *genai.FunctionDeclaration
	Run(ctx agent.Context, args any) (map[string]any, error)
}

type streaming interface {
	tool.Tool
	Declaration() *genai.FunctionDeclaration
	RunStream(ctx agent.Context, args any) iter.Seq2[string, error]
}

type preparing interface {
	ProcessRequest(ctx agent.Context, request *model.LLMRequest) error
}

// Tools wraps every tool of a list; those that a provider runs are as they were.
func Tools(guard *aegis.Guard, list ...tool.Tool) []tool.Tool {
	wrapped := make([]tool.Tool, len(list))
	for i, one := range list {
		switch body := one.(type) {
		case *guarded, *guardedStream:
			wrapped[i] = one
		case streaming: // the kit streams what can be streamed
			wrapped[i] = &guardedStream{streaming: body, guard: guard}
		case function:
			wrapped[i] = &guarded{function: body, guard: guard}
		default:
			wrapped[i] = one
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

// ProcessRequest lets the set prepare the request; tools that it puts in there are wrapped.
func (s *toolset) ProcessRequest(ctx agent.Context, request *model.LLMRequest) error {
	one, ok := s.Toolset.(preparing)
	if !ok {
		return nil
	}
	before := maps.Clone(request.Tools)
	if err := one.ProcessRequest(ctx, request); err != nil {
		return err
	}
	for name, put := range request.Tools {
		if body, ok := put.(tool.Tool); ok && before[name] != put {
			request.Tools[name] = Tools(s.guard, body)[0]
		}
	}
	return nil
}

type guarded struct {
	function
	guard *aegis.Guard
}

// ProcessRequest lets the tool prepare the request, and stands in its place there: what a request names is what runs.
func (g *guarded) ProcessRequest(ctx agent.Context, request *model.LLMRequest) error {
	return prepare(ctx, request, g.function, g)
}

// DefersResponse says whether somebody else answers the call, as the tool itself says it.
func (g *guarded) DefersResponse() bool {
	one, ok := g.function.(interface{ DefersResponse() bool })
	return ok && one.DefersResponse()
}

func prepare(ctx agent.Context, request *model.LLMRequest, body, in tool.Tool) error {
	if one, ok := body.(preparing); ok {
		if err := one.ProcessRequest(ctx, request); err != nil {
			return err
		}
	}
	if request.Tools == nil {
		request.Tools = map[string]any{}
	}
	request.Tools[in.Name()] = in
	return nil
}

// Run decides, runs what was decided on, and gives what may be seen of the result.
func (g *guarded) Run(ctx agent.Context, args any) (map[string]any, error) {
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
	agent.Context
	values context.Context
}

// Value gives what the call's own context holds.
func (c *called) Value(key any) any { return c.values.Value(key) }

// guardedStream is a tool whose result comes in pieces; it is judged as a whole, and comes in one.
type guardedStream struct {
	streaming
	guard *aegis.Guard
}

// ProcessRequest does what that of a function does.
func (g *guardedStream) ProcessRequest(ctx agent.Context, request *model.LLMRequest) error {
	return prepare(ctx, request, g.streaming, g)
}

// RunStream decides, runs what was decided on to its end, and gives what may be seen of all that came.
func (g *guardedStream) RunStream(ctx agent.Context, args any) iter.Seq2[string, error] {
	return func(yield func(string, error) bool) {
		enforced := g.guard.Enforce(ctx, aegis.Attempt{Tool: g.Name(), CallID: ctx.FunctionCallID(), Arguments: args})
		if !enforced.Allowed() {
			yield(enforced.Refusal(), nil)
			return
		}
		var decided map[string]any
		if err := json.Unmarshal(enforced.Arguments, &decided); err != nil {
			yield("the call was not run: its arguments are no object", nil)
			return
		}
		var whole strings.Builder
		for piece, err := range g.streaming.RunStream(&called{Context: ctx, values: enforced.Context(ctx)}, decided) {
			if err != nil {
				if seen := g.guard.ObserveFailure(ctx, enforced, err); seen.Withheld() || seen.Replaced != nil {
					err = errors.New(seen.Text(err.Error()))
				}
				yield("", err)
				return
			}
			whole.WriteString(piece)
		}
		yield(g.guard.Observe(ctx, enforced, whole.String()).Text(whole.String()), nil)
	}
}

func failed(text string) map[string]any { return map[string]any{"error": text} }
