// Package mcp puts servers and clients of the MCP Go SDK behind an Aegis gateway.
//
// [Protect] decides in a server where a tool's body runs; [ProtectClient] decides in a client before a call leaves it.
// Use the one that is yours: with both a call is decided twice.
package mcp

import (
	"context"
	"encoding/json"
	"errors"

	aegis "github.com/aegis-guard/aegis/sdk/go"
	"github.com/modelcontextprotocol/go-sdk/mcp"
)

// Protect makes a server decide every call of a tool before its body runs, and judge what it gives back.
//
// name is the server's namespace, such as `mcp:mail`: it is part of the tools' identity.
func Protect(server *mcp.Server, guard *aegis.Guard, name string) {
	server.AddReceivingMiddleware(middleware(guard, name))
}

// ProtectClient makes a client decide every call before it is sent to a server, and judge what comes back.
func ProtectClient(client *mcp.Client, guard *aegis.Guard, name string) {
	client.AddSendingMiddleware(middleware(guard, name))
}

const callTool = "tools/call"

func middleware(guard *aegis.Guard, name string) mcp.Middleware {
	return func(next mcp.MethodHandler) mcp.MethodHandler {
		return func(ctx context.Context, method string, request mcp.Request) (mcp.Result, error) {
			if method != callTool {
				return next(ctx, method, request)
			}
			tool, given, set, err := callOf(request)
			if err != nil {
				return nil, err
			}
			enforced := guard.Enforce(ctx, aegis.Attempt{Tool: tool, Server: name, Arguments: given})
			if !enforced.Allowed() {
				return refusal(enforced.Refusal()), nil
			}
			set(enforced.Arguments) // the very bytes that were decided on
			result, err := next(enforced.Context(ctx), method, request)
			if err != nil {
				if seen := guard.ObserveFailure(ctx, enforced, err); seen.Withheld() || seen.Replaced != nil {
					return refusal(seen.Text(err.Error())), nil
				}
				return nil, err
			}
			return observed(ctx, guard, enforced, result), nil
		}
	}
}

// callOf gives the tool of a request, its arguments, and what puts others in their place.
func callOf(request mcp.Request) (string, any, func(json.RawMessage), error) {
	switch params := request.GetParams().(type) {
	case *mcp.CallToolParamsRaw: // in a server
		given := params.Arguments
		if len(given) == 0 {
			given = json.RawMessage("{}")
		}
		return params.Name, given, func(decided json.RawMessage) { params.Arguments = decided }, nil
	case *mcp.CallToolParams: // in a client
		return params.Name, params.Arguments, func(decided json.RawMessage) { params.Arguments = decided }, nil
	}
	return "", nil, nil, errors.New("aegis: a call of a tool has a shape that is not known here, so it was refused")
}

func observed(ctx context.Context, guard *aegis.Guard, enforced aegis.Enforced, result mcp.Result) mcp.Result {
	called, ok := result.(*mcp.CallToolResult)
	if !ok { // a round that asks for input: what it says reaches the model as well
		seen := guard.Observe(ctx, enforced, result)
		if seen.Withheld() || seen.Replaced != nil {
			return refusal(firstOf(seen.Notice, "the result was withheld: it may not be seen as it is"))
		}
		return result
	}
	seen := guard.Observe(ctx, enforced, called)
	switch {
	case seen.Withheld():
		return refusal(seen.Notice)
	case seen.Replaced == nil:
		return result
	}
	var changed mcp.CallToolResult
	if err := json.Unmarshal(seen.Replaced, &changed); err != nil {
		return refusal("the result was withheld: what may be seen of it is no result of a tool")
	}
	return &changed
}

func refusal(text string) *mcp.CallToolResult {
	return &mcp.CallToolResult{Content: []mcp.Content{&mcp.TextContent{Text: text}}, IsError: true}
}

func firstOf(text, otherwise string) string {
	if text != "" {
		return text
	}
	return otherwise
}
