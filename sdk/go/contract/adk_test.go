package contract

import (
	"context"
	"encoding/json"
	"iter"
	"testing"

	aegis "github.com/aegis-guard/aegis/sdk/go"
	aegisadk "github.com/aegis-guard/aegis/sdk/go/adk"
	"google.golang.org/adk/v2/agent"
	"google.golang.org/adk/v2/agent/llmagent"
	adkmodels "google.golang.org/adk/v2/model"
	"google.golang.org/adk/v2/runner"
	"google.golang.org/adk/v2/session"
	"google.golang.org/adk/v2/tool"
	"google.golang.org/adk/v2/tool/functiontool"
	"google.golang.org/genai"
)

func init() {
	for name, streamed := range map[string]bool{"adk": false, "adk-stream": true} {
		drivers[name] = func(t *testing.T, ctx context.Context, guard *aegis.Guard, bodies *workshop, calls []planned) []string {
			return adk(t, ctx, guard, bodies, calls, streamed)
		}
	}
}

// adkModel makes the calls of one turn, and keeps what it is told of them.
type adkModel struct {
	calls []planned
	read  map[string]map[string]any
}

func (m *adkModel) Name() string { return "scripted" }

func (m *adkModel) GenerateContent(_ context.Context, request *adkmodels.LLMRequest, _ bool) iter.Seq2[*adkmodels.LLMResponse, error] {
	content := &genai.Content{Role: "model"}
	for _, said := range request.Contents {
		for _, part := range said.Parts {
			if part.FunctionResponse != nil {
				m.read[part.FunctionResponse.ID] = part.FunctionResponse.Response
			}
		}
	}
	for _, one := range m.calls {
		arguments := map[string]any{}
		if json.Unmarshal([]byte(one.arguments), &arguments) == nil && len(m.read) == 0 {
			called := &genai.FunctionCall{ID: one.id, Name: one.tool, Args: arguments}
			content.Parts = append(content.Parts, &genai.Part{FunctionCall: called})
		}
	}
	if len(content.Parts) == 0 {
		content.Parts = []*genai.Part{{Text: "done"}}
	}
	return func(yield func(*adkmodels.LLMResponse, error) bool) {
		yield(&adkmodels.LLMResponse{Content: content, TurnComplete: true}, nil)
	}
}

func adk(t *testing.T, ctx context.Context, guard *aegis.Guard, bodies *workshop, calls []planned, streamed bool) []string {
	var list []tool.Tool
	for _, name := range []string{"read_file", "send_email"} {
		body := func(_ agent.Context, arguments map[string]any) (map[string]any, error) {
			written, err := json.Marshal(arguments)
			if err != nil {
				return nil, err
			}
			text, err := bodies.run(name, written)
			return map[string]any{"text": text}, err
		}
		made, err := functiontool.New(functiontool.Config{Name: name, Description: "a tool"}, body)
		if err != nil {
			t.Fatal(err)
		}
		if streamed {
			made = &pieces{made.(described), body}
		}
		list = append(list, made)
	}
	scripted := &adkModel{calls: calls, read: map[string]map[string]any{}}
	half := &half{tools: list[1:]}
	made, err := llmagent.New(llmagent.Config{
		Name: "reader", Model: scripted, Tools: aegisadk.Tools(guard, list[0]),
		Toolsets: []tool.Toolset{aegisadk.Toolset(guard, half)},
	})
	if err != nil {
		t.Fatal(err)
	}
	sessions := session.InMemoryService()
	started, err := sessions.Create(ctx, &session.CreateRequest{AppName: "app", UserID: "u"})
	if err != nil {
		t.Fatal(err)
	}
	running, err := runner.New(runner.Config{AppName: "app", Agent: made, SessionService: sessions})
	if err != nil {
		t.Fatal(err)
	}
	for _, err := range running.Run(ctx, "u", started.Session.ID(), genai.NewContentFromText("go on", "user"), agent.RunConfig{}) {
		if err != nil {
			t.Fatal(err)
		}
	}
	read := make([]string, len(calls))
	for i, one := range calls {
		said, err := json.Marshal(scripted.read[one.id])
		if err != nil {
			t.Fatal(err)
		}
		read[i] = string(said)
	}
	return read
}

// half is a set of tools, as servers and extensions bring them.
type half struct{ tools []tool.Tool }

func (h *half) Name() string                                     { return "half" }
func (h *half) Tools(agent.ReadonlyContext) ([]tool.Tool, error) { return h.tools, nil }

// pieces is a tool that gives its result in pieces.
type pieces struct {
	described
	body func(agent.Context, map[string]any) (map[string]any, error)
}

type described interface {
	tool.Tool
	Declaration() *genai.FunctionDeclaration
}

func (p *pieces) RunStream(ctx agent.Context, arguments any) iter.Seq2[string, error] {
	return func(yield func(string, error) bool) {
		result, err := p.body(ctx, arguments.(map[string]any))
		text, _ := result["text"].(string)
		half := len(text) / 2
		_ = yield(text[:half], nil) && yield(text[half:], err)
	}
}
