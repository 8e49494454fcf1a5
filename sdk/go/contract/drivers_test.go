package contract

import (
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"net/http/httptest"
	"os"
	"strings"
	"sync"
	"testing"

	aegis "github.com/aegis-guard/aegis/sdk/go"
	aegisanthropic "github.com/aegis-guard/aegis/sdk/go/anthropic"
	aegislangchain "github.com/aegis-guard/aegis/sdk/go/langchain"
	aegismcp "github.com/aegis-guard/aegis/sdk/go/mcp"
	aegisopenai "github.com/aegis-guard/aegis/sdk/go/openai"
	"github.com/anthropics/anthropic-sdk-go"
	anthropicoption "github.com/anthropics/anthropic-sdk-go/option"
	"github.com/anthropics/anthropic-sdk-go/toolrunner"
	"github.com/modelcontextprotocol/go-sdk/mcp"
	"github.com/openai/openai-go/v3"
	"github.com/openai/openai-go/v3/option"
	"github.com/openai/openai-go/v3/responses"
	"github.com/tmc/langchaingo/tools"
)

var drivers = map[string]driver{
	"protect":          protected,
	"langchaingo":      langchain,
	"mcp-server":       mcpServer,
	"mcp-client":       mcpClient,
	"anthropic-runner": anthropicRunner,
	"anthropic": func(t *testing.T, c context.Context, g *aegis.Guard, w *workshop, p []planned) []string {
		return anthropicMessages(t, c, g, w, p, false)
	},
	"anthropic-stream": func(t *testing.T, c context.Context, g *aegis.Guard, w *workshop, p []planned) []string {
		return anthropicMessages(t, c, g, w, p, true)
	},
	"openai-chat": func(t *testing.T, c context.Context, g *aegis.Guard, w *workshop, p []planned) []string {
		return openaiChat(t, c, g, w, p, false)
	},
	"openai-chat-stream": func(t *testing.T, c context.Context, g *aegis.Guard, w *workshop, p []planned) []string {
		return openaiChat(t, c, g, w, p, true)
	},
	"openai-responses": func(t *testing.T, c context.Context, g *aegis.Guard, w *workshop, p []planned) []string {
		return openaiResponses(t, c, g, w, p, false)
	},
	"openai-resp-stream": func(t *testing.T, c context.Context, g *aegis.Guard, w *workshop, p []planned) []string {
		return openaiResponses(t, c, g, w, p, true)
	},
}

// rounds are the packages that decode numbers as doubles before a hook can see them.
var rounds = map[string]bool{"anthropic-runner": true, "adk": true, "adk-stream": true}

func rootHoldsIt() bool { return os.Geteuid() == 0 }

// all runs something for every call at the same time.
func all(calls []planned, run func(planned) string) []string {
	read := make([]string, len(calls))
	var waiting sync.WaitGroup
	for i, one := range calls {
		waiting.Go(func() { read[i] = run(one) })
	}
	waiting.Wait()
	return read
}

func protected(_ *testing.T, ctx context.Context, guard *aegis.Guard, bodies *workshop, calls []planned) []string {
	return all(calls, func(one planned) string {
		body := aegis.Protect(guard, one.tool, func(_ context.Context, arguments json.RawMessage) (string, error) {
			return bodies.run(one.tool, arguments)
		})
		text, err := body(ctx, json.RawMessage(one.arguments))
		var refused *aegis.Blocked
		switch {
		case errors.As(err, &refused):
			return refused.Refusal
		case err != nil:
			return err.Error()
		}
		return text
	})
}

type langchainTool struct {
	name   string
	bodies *workshop
}

func (l langchainTool) Name() string        { return l.name }
func (l langchainTool) Description() string { return "a tool" }
func (l langchainTool) Call(_ context.Context, input string) (string, error) {
	return l.bodies.run(l.name, json.RawMessage(input))
}

func langchain(_ *testing.T, ctx context.Context, guard *aegis.Guard, bodies *workshop, calls []planned) []string {
	wrapped := map[string]tools.Tool{}
	for _, name := range []string{"read_file", "send_email"} {
		wrapped[name] = aegislangchain.Tools(guard, langchainTool{name, bodies})[0]
	}
	return all(calls, func(one planned) string {
		text, err := wrapped[one.tool].Call(ctx, one.arguments)
		if err != nil {
			return err.Error()
		}
		return text
	})
}

func mcpSession(
	t *testing.T, bodies *workshop, onServer func(*mcp.Server), onClient func(*mcp.Client),
) *mcp.ClientSession {
	t.Helper()
	server := mcp.NewServer(&mcp.Implementation{Name: "files", Version: "1"}, nil)
	for _, name := range []string{"read_file", "send_email"} {
		server.AddTool(
			&mcp.Tool{Name: name, InputSchema: map[string]any{"type": "object"}},
			func(_ context.Context, request *mcp.CallToolRequest) (*mcp.CallToolResult, error) {
				text, err := bodies.run(name, request.Params.Arguments)
				if err != nil {
					return nil, err
				}
				return &mcp.CallToolResult{Content: []mcp.Content{&mcp.TextContent{Text: text}}}, nil
			})
	}
	client := mcp.NewClient(&mcp.Implementation{Name: "host", Version: "1"}, nil)
	onServer(server)
	onClient(client)
	here, there := mcp.NewInMemoryTransports()
	if _, err := server.Connect(context.Background(), there, nil); err != nil {
		t.Fatal(err)
	}
	session, err := client.Connect(context.Background(), here, nil)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = session.Close() })
	return session
}

func mcpServer(t *testing.T, ctx context.Context, guard *aegis.Guard, bodies *workshop, calls []planned) []string {
	return mcpRead(ctx, calls, mcpSession(t, bodies,
		func(server *mcp.Server) { aegismcp.Protect(server, guard, "") }, func(*mcp.Client) {}))
}

func mcpClient(t *testing.T, ctx context.Context, guard *aegis.Guard, bodies *workshop, calls []planned) []string {
	return mcpRead(ctx, calls, mcpSession(t, bodies,
		func(*mcp.Server) {}, func(client *mcp.Client) { aegismcp.ProtectClient(client, guard, "") }))
}

func mcpRead(ctx context.Context, calls []planned, session *mcp.ClientSession) []string {
	return all(calls, func(one planned) string {
		result, err := session.CallTool(ctx, &mcp.CallToolParams{Name: one.tool, Arguments: json.RawMessage(one.arguments)})
		if err != nil {
			return err.Error()
		}
		written, _ := json.Marshal(result.Content)
		return string(written)
	})
}

// model is a provider that makes the planned calls in its first answer and says goodbye in its second.
type model struct {
	*httptest.Server
	asked []string
}

func modelOf(t *testing.T, first, last func(streamed bool) string) *model {
	t.Helper()
	found := &model{}
	found.Server = httptest.NewServer(http.HandlerFunc(func(writer http.ResponseWriter, request *http.Request) {
		var body struct{ Stream bool }
		written, _ := readAll(request)
		_ = json.Unmarshal(written, &body)
		found.asked = append(found.asked, string(written))
		writer.Header().Set("Content-Type", "application/json")
		if body.Stream {
			writer.Header().Set("Content-Type", "text/event-stream")
		}
		say := first
		if len(found.asked) > 1 {
			say = last
		}
		_, _ = writer.Write([]byte(say(body.Stream)))
	}))
	t.Cleanup(found.Close)
	return found
}

// readBy gives what the model reads for every call: what its second request says, or where there is none, the answer.
func (m *model) readBy(t *testing.T, calls []planned, said string) []string {
	t.Helper()
	read := make([]string, len(calls))
	for i, one := range calls {
		read[i] = said
		if len(m.asked) > 1 {
			read[i] = resultIn(t, m.asked[1], one.id)
		}
	}
	return read
}

// resultIn finds the result of a call in a request of any of the formats.
func resultIn(t *testing.T, request, id string) string {
	t.Helper()
	var body struct {
		Messages []map[string]any
		Input    []map[string]any
	}
	if err := json.Unmarshal([]byte(request), &body); err != nil {
		t.Fatal(err)
	}
	found := []string{}
	for _, item := range append(body.Messages, body.Input...) {
		if item["tool_call_id"] == id || (item["call_id"] == id && strings.HasSuffix(item["type"].(string), "_output")) {
			written, _ := json.Marshal(item)
			found = append(found, string(written))
		}
		blocks, _ := item["content"].([]any)
		for _, block := range blocks {
			if one, ok := block.(map[string]any); ok && one["tool_use_id"] == id {
				written, _ := json.Marshal(one)
				found = append(found, string(written))
			}
		}
	}
	if len(found) != 1 {
		t.Errorf("%d results of %s in %s", len(found), id, request)
		return ""
	}
	return found[0]
}

func anthropicMessages(
	t *testing.T, ctx context.Context, guard *aegis.Guard, bodies *workshop, calls []planned, streamed bool,
) []string {
	m := modelOf(t, func(s bool) string { return anthropicSays(calls, s) }, func(s bool) string { return anthropicSays(nil, s) })
	client := anthropic.NewClient(anthropicoption.WithBaseURL(m.URL), anthropicoption.WithAPIKey("k"),
		anthropicoption.WithMaxRetries(0), aegisanthropic.Middleware(guard))
	params := anthropic.MessageNewParams{
		Model: "m", MaxTokens: 100,
		Messages: []anthropic.MessageParam{anthropic.NewUserMessage(anthropic.NewTextBlock("go on"))},
	}
	said := ""
	for range 2 {
		var message anthropic.Message
		if streamed {
			stream := client.Messages.NewStreaming(ctx, params)
			for stream.Next() {
				if err := message.Accumulate(stream.Current()); err != nil {
					t.Fatal(err)
				}
			}
			if stream.Err() != nil {
				t.Fatal(stream.Err())
			}
		} else {
			got, err := client.Messages.New(ctx, params)
			if err != nil {
				t.Fatal(err)
			}
			message = *got
		}
		params.Messages = append(params.Messages, message.ToParam())
		var results []anthropic.ContentBlockParamUnion
		for _, block := range message.Content {
			switch block.Type {
			case "text":
				said += block.Text
			case "tool_use":
				text, err := bodies.run(block.Name, block.Input)
				if err != nil {
					text = err.Error()
				}
				results = append(results, anthropic.NewToolResultBlock(block.ID, text, err != nil))
			}
		}
		if len(results) == 0 {
			if message.StopReason != "end_turn" {
				t.Errorf("the answer ends with %s", message.StopReason)
			}
			break
		}
		params.Messages = append(params.Messages, anthropic.NewUserMessage(results...))
	}
	return m.readBy(t, calls, said)
}

func anthropicRunner(t *testing.T, ctx context.Context, guard *aegis.Guard, bodies *workshop, calls []planned) []string {
	m := modelOf(t, func(s bool) string { return anthropicSays(calls, s) }, func(s bool) string { return anthropicSays(nil, s) })
	client := anthropic.NewClient(anthropicoption.WithBaseURL(m.URL), anthropicoption.WithAPIKey("k"), anthropicoption.WithMaxRetries(0))
	var list []anthropic.BetaTool
	for _, name := range []string{"read_file", "send_email"} {
		tool, err := toolrunner.NewBetaToolFromBytes(name, "a tool", []byte(`{"type":"object"}`),
			func(_ context.Context, input json.RawMessage) (anthropic.BetaToolResultBlockParamContentUnion, error) {
				text, err := bodies.run(name, input)
				return anthropic.BetaToolResultBlockParamContentUnion{OfText: &anthropic.BetaTextBlockParam{Text: text}}, err
			})
		if err != nil {
			t.Fatal(err)
		}
		list = append(list, tool)
	}
	runner := client.Beta.Messages.NewToolRunner(aegisanthropic.Tools(guard, list...), anthropic.BetaToolRunnerParams{
		BetaMessageNewParams: anthropic.BetaMessageNewParams{
			Model: "m", MaxTokens: 100,
			Messages: []anthropic.BetaMessageParam{anthropic.NewBetaUserMessage(anthropic.NewBetaTextBlock("go on"))},
		},
	})
	if _, err := runner.RunToCompletion(ctx); err != nil {
		t.Fatal(err)
	}
	return m.readBy(t, calls, "")
}

func openaiClient(url string, guard *aegis.Guard) openai.Client {
	return openai.NewClient(option.WithBaseURL(url+"/v1"), option.WithAPIKey("k"), option.WithMaxRetries(0), aegisopenai.Middleware(guard))
}

func openaiChat(
	t *testing.T, ctx context.Context, guard *aegis.Guard, bodies *workshop, calls []planned, streamed bool,
) []string {
	m := modelOf(t, func(s bool) string { return chatSays(calls, s) }, func(s bool) string { return chatSays(nil, s) })
	client := openaiClient(m.URL, guard)
	params := openai.ChatCompletionNewParams{Model: "m", Messages: []openai.ChatCompletionMessageParamUnion{openai.UserMessage("go on")}}
	said := ""
	for range 2 {
		var choice openai.ChatCompletionChoice
		if streamed {
			stream, whole := client.Chat.Completions.NewStreaming(ctx, params), openai.ChatCompletionAccumulator{}
			for stream.Next() {
				if !whole.AddChunk(stream.Current()) {
					t.Fatal("a chunk does not fit")
				}
			}
			if stream.Err() != nil {
				t.Fatal(stream.Err())
			}
			choice = whole.Choices[0]
		} else {
			got, err := client.Chat.Completions.New(ctx, params)
			if err != nil {
				t.Fatal(err)
			}
			choice = got.Choices[0]
		}
		said += choice.Message.Content
		params.Messages = append(params.Messages, choice.Message.ToParam())
		if len(choice.Message.ToolCalls) == 0 {
			if choice.FinishReason != "stop" {
				t.Errorf("the answer ends with %s", choice.FinishReason)
			}
			break
		}
		for _, one := range choice.Message.ToolCalls {
			text, err := bodies.run(one.Function.Name, json.RawMessage(one.Function.Arguments))
			if err != nil {
				text = err.Error()
			}
			params.Messages = append(params.Messages, openai.ToolMessage(text, one.ID))
		}
	}
	return m.readBy(t, calls, said)
}

func openaiResponses(
	t *testing.T, ctx context.Context, guard *aegis.Guard, bodies *workshop, calls []planned, streamed bool,
) []string {
	m := modelOf(t, func(s bool) string { return responsesSays(calls, s) }, func(s bool) string { return responsesSays(nil, s) })
	client := openaiClient(m.URL, guard)
	params := responses.ResponseNewParams{Model: "m", Input: responses.ResponseNewParamsInputUnion{OfString: openai.String("go on")}}
	said := ""
	for range 2 {
		var answer responses.Response
		if streamed {
			stream := client.Responses.NewStreaming(ctx, params)
			for stream.Next() {
				if event := stream.Current(); event.Type == "response.completed" {
					answer = event.Response
				}
			}
			if stream.Err() != nil {
				t.Fatal(stream.Err())
			}
		} else {
			got, err := client.Responses.New(ctx, params)
			if err != nil {
				t.Fatal(err)
			}
			answer = *got
		}
		said += answer.OutputText()
		params.PreviousResponseID = openai.String(answer.ID)
		var input responses.ResponseInputParam
		for _, item := range answer.Output {
			if item.Type != "function_call" {
				continue
			}
			one := item.AsFunctionCall()
			text, err := bodies.run(one.Name, json.RawMessage(one.Arguments))
			if err != nil {
				text = err.Error()
			}
			output := responses.ResponseInputItemParamOfFunctionCallOutput(text)
			output.OfFunctionCallOutput.CallID = openai.String(one.CallID)
			input = append(input, output)
		}
		if input == nil {
			break
		}
		params.Input = responses.ResponseNewParamsInputUnion{OfInputItemList: input}
	}
	return m.readBy(t, calls, said)
}
