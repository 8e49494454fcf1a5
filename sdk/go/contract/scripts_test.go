package contract

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"strings"
)

func readAll(request *http.Request) ([]byte, error) { return io.ReadAll(request.Body) }

func quoted(text string) string {
	written, _ := json.Marshal(text)
	return string(written)
}

// What a provider says, as its documents show it: the calls, or where there are none, a last word.

func anthropicSays(calls []planned, streamed bool) string {
	stop, blocks := "tool_use", []string{}
	for _, one := range calls {
		blocks = append(blocks, fmt.Sprintf(`{"type":"tool_use","id":%q,"name":%q,"input":%s}`, one.id, one.tool, one.arguments))
	}
	if calls == nil {
		stop, blocks = "end_turn", []string{`{"type":"text","text":"done"}`}
	}
	head := `"id":"msg_1","type":"message","role":"assistant","model":"m","usage":{"input_tokens":1,"output_tokens":1}`
	if !streamed {
		return fmt.Sprintf(`{%s,"content":[%s],"stop_reason":%q,"stop_sequence":null}`, head, strings.Join(blocks, ","), stop)
	}
	out := event("message_start", fmt.Sprintf(`{"type":"message_start","message":{%s,"content":[],"stop_reason":null,"stop_sequence":null}}`, head))
	for at, one := range calls {
		out += event("content_block_start", fmt.Sprintf(`{"type":"content_block_start","index":%d,"content_block":{"type":"tool_use","id":%q,"name":%q,"input":{}}}`, at, one.id, one.tool))
		half := len(one.arguments) / 2
		for _, part := range []string{one.arguments[:half], one.arguments[half:]} {
			out += event("content_block_delta", fmt.Sprintf(`{"type":"content_block_delta","index":%d,"delta":{"type":"input_json_delta","partial_json":%s}}`, at, quoted(part)))
		}
		out += event("content_block_stop", fmt.Sprintf(`{"type":"content_block_stop","index":%d}`, at))
	}
	if calls == nil {
		out += event("content_block_start", `{"type":"content_block_start","index":0,"content_block":{"type":"text","text":""}}`)
		out += event("content_block_delta", `{"type":"content_block_delta","index":0,"delta":{"type":"text_delta","text":"done"}}`)
		out += event("content_block_stop", `{"type":"content_block_stop","index":0}`)
	}
	out += event("message_delta", fmt.Sprintf(`{"type":"message_delta","delta":{"stop_reason":%q,"stop_sequence":null},"usage":{"output_tokens":9}}`, stop))
	return out + event("message_stop", `{"type":"message_stop"}`)
}

func event(name, data string) string {
	if name != "" {
		name = "event: " + name + "\n"
	}
	return name + "data: " + data + "\n\n"
}

func chatSays(calls []planned, streamed bool) string {
	if streamed {
		head := `"id":"c","object":"chat.completion.chunk","created":1,"model":"m"`
		out := event("", fmt.Sprintf(`{%s,"choices":[{"index":0,"delta":{"role":"assistant","content":null},"finish_reason":null}]}`, head))
		for at, one := range calls {
			out += event("", fmt.Sprintf(`{%s,"choices":[{"index":0,"delta":{"tool_calls":[{"index":%d,"id":%q,"type":"function","function":{"name":%q,"arguments":""}}]},"finish_reason":null}]}`, head, at, one.id, one.tool))
			half := len(one.arguments) / 2
			for _, part := range []string{one.arguments[:half], one.arguments[half:]} {
				out += event("", fmt.Sprintf(`{%s,"choices":[{"index":0,"delta":{"tool_calls":[{"index":%d,"function":{"arguments":%s}}]},"finish_reason":null}]}`, head, at, quoted(part)))
			}
		}
		stop := "tool_calls"
		if calls == nil {
			stop = "stop"
			out += event("", fmt.Sprintf(`{%s,"choices":[{"index":0,"delta":{"content":"done"},"finish_reason":null}]}`, head))
		}
		out += event("", fmt.Sprintf(`{%s,"choices":[{"index":0,"delta":{},"finish_reason":%q}]}`, head, stop))
		return out + event("", "[DONE]")
	}
	message, stop := `"content":"done"`, "stop"
	if calls != nil {
		var items []string
		for _, one := range calls {
			items = append(items, fmt.Sprintf(`{"id":%q,"type":"function","function":{"name":%q,"arguments":%s}}`, one.id, one.tool, quoted(one.arguments)))
		}
		message, stop = `"content":null,"tool_calls":[`+strings.Join(items, ",")+`]`, "tool_calls"
	}
	return fmt.Sprintf(`{"id":"c","object":"chat.completion","created":1,"model":"m","choices":[{"index":0,"message":{"role":"assistant",%s},"finish_reason":%q}],"usage":{"prompt_tokens":1,"completion_tokens":1,"total_tokens":2}}`, message, stop)
}

func responsesSays(calls []planned, streamed bool) string {
	var items []string
	for _, one := range calls {
		items = append(items, fmt.Sprintf(`{"type":"function_call","id":"fc_%s","call_id":%q,"name":%q,"arguments":%s,"status":"completed"}`, one.id, one.id, one.tool, quoted(one.arguments)))
	}
	if calls == nil {
		items = []string{`{"type":"message","id":"m","role":"assistant","status":"completed","content":[{"type":"output_text","text":"done","annotations":[]}]}`}
	}
	id := "resp_last"
	if len(calls) > 0 {
		id = "resp_" + calls[0].id
	}
	whole := fmt.Sprintf(`{"id":%q,"object":"response","created_at":1,"model":"m","status":"completed","output":[%s]}`, id, strings.Join(items, ","))
	if !streamed {
		return whole
	}
	out := ""
	for at, item := range items {
		out += event("response.output_item.added", fmt.Sprintf(`{"type":"response.output_item.added","output_index":%d,"sequence_number":1,"item":%s}`, at, item))
		out += event("response.output_item.done", fmt.Sprintf(`{"type":"response.output_item.done","output_index":%d,"sequence_number":2,"item":%s}`, at, item))
	}
	return out + event("response.completed", fmt.Sprintf(`{"type":"response.completed","sequence_number":3,"response":%s}`, whole))
}
