package models

import (
	"encoding/json"
	"slices"
)

// messages is Anthropic's messages API.
type messages struct{}

func (messages) state(object) string { return "" }

func (messages) groups(answer object) [][]call {
	var group []call
	for _, block := range objects(answer["content"]) {
		if text(block["type"]) != "tool_use" {
			continue
		}
		input := block["input"]
		if input == nil {
			input = object{}
		}
		group = append(group, call{
			id: text(block["id"]), tool: text(block["name"]), arguments: input, item: block,
			set: func(decided json.RawMessage) { block["input"] = decided },
		})
	}
	return [][]call{group}
}

func (messages) take(answer object, _ int, gone []removed, left int) {
	content := without(answer["content"], gone)
	if left == 0 {
		content = append(content, object{"type": "text", "text": joined(gone)})
		answer["stop_reason"] = "end_turn"
	}
	answer["content"] = content
}

func (messages) putBack(request object, found func(string) []removed) {
	items := objects(request["messages"])
	for at, message := range items {
		content, listed := message["content"].([]any)
		if text(message["role"]) != "assistant" || !listed || at+1 >= len(items) {
			continue
		}
		for _, block := range slices.Clone(content) {
			if text(inner(block)["type"]) != "tool_use" {
				continue
			}
			results := []any{}
			for _, gone := range found(text(inner(block)["id"])) {
				content = append(content, gone.item)
				results = append(results, object{
					"type": "tool_result", "tool_use_id": gone.id, "content": gone.text, "is_error": true,
				})
			}
			if next := items[at+1]; len(results) > 0 {
				after, _ := next["content"].([]any)
				next["content"] = append(results, after...)
			}
		}
		message["content"] = content
	}
}

func (messages) results(request object, seen func(string, any) (any, bool)) {
	for _, message := range objects(request["messages"]) {
		for _, block := range objects(message["content"]) {
			if text(block["type"]) != "tool_result" {
				continue
			}
			if shown, changed := seen(text(block["tool_use_id"]), block["content"]); changed {
				block["content"] = shownAs(shown)
			}
		}
	}
}

func (messages) assemble(events []event) (object, error) {
	var answer object
	var blocks []any
	inputs := map[int]string{}
	for _, one := range events {
		said, err := decode([]byte(one.data))
		if err != nil {
			return nil, err
		}
		at, placed := indexOf(said["index"], len(blocks))
		switch text(said["type"]) {
		case "message_start":
			answer = inner(said["message"])
		case "content_block_start":
			if !placed || at != len(blocks) || inner(said["content_block"]) == nil {
				return nil, errUnread
			}
			blocks = append(blocks, inner(said["content_block"]))
		case "content_block_delta":
			if !placed || at == len(blocks) {
				return nil, errUnread
			}
			delta, block := inner(said["delta"]), blocks[at].(object)
			switch text(delta["type"]) {
			case "input_json_delta":
				inputs[at] += text(delta["partial_json"])
			case "citations_delta":
				before, _ := block["citations"].([]any)
				block["citations"] = append(before, delta["citation"])
			default:
				if err := grow(block, copyOf(delta, object{"type": nil})); err != nil {
					return nil, err
				}
			}
		case "message_delta":
			for key, value := range inner(said["delta"]) {
				answer[key] = value
			}
			if usage := inner(said["usage"]); usage != nil {
				answer["usage"] = copyOf(inner(answer["usage"]), usage)
			}
		}
		if answer == nil && text(said["type"]) != "ping" && text(said["type"]) != "error" {
			return nil, errUnread
		}
	}
	for at, written := range inputs {
		input, err := decode([]byte(written))
		if err != nil {
			return nil, err
		}
		blocks[at].(object)["input"] = input
	}
	if answer == nil {
		answer = object{}
	}
	answer["content"] = blocks
	return answer, nil
}

func (messages) stream(answer object) []event {
	start := copyOf(answer, object{"content": []any{}, "stop_reason": nil, "stop_sequence": nil})
	start["stop_reason"], start["stop_sequence"] = nil, nil
	events := []event{spell("message_start", object{"type": "message_start", "message": start})}
	for at, block := range objects(answer["content"]) {
		opened, deltas := block, []object{}
		switch text(block["type"]) {
		case "text":
			opened = copyOf(block, object{"text": ""})
			deltas = append(deltas, object{"type": "text_delta", "text": block["text"]})
		case "tool_use":
			opened = copyOf(block, object{"input": object{}})
			input, _ := json.Marshal(block["input"]) // it was decoded from JSON
			deltas = append(deltas, object{"type": "input_json_delta", "partial_json": string(input)})
		case "thinking":
			opened = copyOf(block, object{"thinking": "", "signature": ""})
			deltas = append(deltas, object{"type": "thinking_delta", "thinking": block["thinking"]},
				object{"type": "signature_delta", "signature": block["signature"]})
		}
		events = append(events, spell("content_block_start",
			object{"type": "content_block_start", "index": at, "content_block": opened}))
		for _, delta := range deltas {
			events = append(events, spell("content_block_delta",
				object{"type": "content_block_delta", "index": at, "delta": delta}))
		}
		events = append(events, spell("content_block_stop", object{"type": "content_block_stop", "index": at}))
	}
	ended := object{"stop_reason": answer["stop_reason"], "stop_sequence": answer["stop_sequence"]}
	events = append(events, spell("message_delta",
		object{"type": "message_delta", "delta": ended, "usage": answer["usage"]}))
	return append(events, spell("message_stop", object{"type": "message_stop"}))
}
