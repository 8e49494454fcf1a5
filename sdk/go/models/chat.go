package models

import (
	"encoding/json"
	"slices"
)

// chat is OpenAI's chat completions, and whatever is compatible with them.
type chat struct{}

func (chat) state(object) string { return "" }

func (chat) groups(answer object) [][]call {
	var groups [][]call
	for _, choice := range objects(answer["choices"]) {
		var group []call
		for _, item := range objects(inner(choice["message"])["tool_calls"]) {
			group = append(group, chatCall(item))
		}
		if old := inner(inner(choice["message"])["function_call"]); old != nil { // before tools there were functions
			group = append(group, call{
				tool: text(old["name"]), arguments: spelt(old["arguments"]), item: old,
				set: func(decided json.RawMessage) { old["arguments"] = string(decided) },
			})
		}
		groups = append(groups, group)
	}
	return groups
}

func chatCall(item object) call {
	found := call{id: text(item["id"]), item: item}
	if custom := inner(item["custom"]); custom != nil {
		found.tool, found.arguments = text(custom["name"]), object{"input": custom["input"]}
		found.set = func(decided json.RawMessage) { custom["input"] = inputOf(decided) }
		return found
	}
	function := inner(item["function"])
	found.tool, found.arguments = text(function["name"]), spelt(function["arguments"])
	found.set = func(decided json.RawMessage) { function["arguments"] = string(decided) }
	return found
}

// inputOf gives the free text of a custom tool's decided arguments.
func inputOf(decided json.RawMessage) string {
	var arguments struct{ Input string }
	_ = json.Unmarshal(decided, &arguments) // decided bytes are an object; without `input` the text is empty
	return arguments.Input
}

func (chat) take(answer object, group int, gone []removed, left int) {
	choice := objects(answer["choices"])[group]
	message := inner(choice["message"])
	for _, one := range gone {
		if same(message["function_call"], one.item) {
			delete(message, "function_call")
		}
	}
	if calls := without(message["tool_calls"], gone); len(calls) > 0 {
		message["tool_calls"] = calls
	} else {
		delete(message, "tool_calls")
	}
	if left > 0 {
		return
	}
	said := joined(gone)
	if before := text(message["content"]); before != "" {
		said = before + "\n" + said
	}
	message["content"], choice["finish_reason"] = said, "stop"
}

func (chat) putBack(request object, found func(string) []removed) {
	var out []any
	items, _ := request["messages"].([]any)
	for _, item := range items {
		out = append(out, item)
		message := inner(item)
		if message == nil || text(message["role"]) != "assistant" {
			continue
		}
		calls, _ := message["tool_calls"].([]any)
		for _, one := range slices.Clone(calls) {
			for _, gone := range found(text(inner(one)["id"])) {
				message["tool_calls"] = append(message["tool_calls"].([]any), gone.item)
				out = append(out, object{"role": "tool", "tool_call_id": gone.id, "content": gone.text})
			}
		}
	}
	if out != nil {
		request["messages"] = out
	}
}

func (chat) results(request object, seen func(string, any) (any, bool)) {
	for _, message := range objects(request["messages"]) {
		if text(message["role"]) != "tool" {
			continue
		}
		if shown, changed := seen(text(message["tool_call_id"]), message["content"]); changed {
			message["content"] = shownAs(shown)
		}
	}
}

// shownAs gives a result in a place that takes text or a list of parts.
func shownAs(shown any) any {
	switch shown.(type) {
	case string, []any:
		return shown
	}
	data, _ := json.Marshal(shown) // it was decoded from JSON
	return string(data)
}

func (chat) assemble(events []event) (object, error) {
	answer := object{}
	var choices []any
	for _, one := range events {
		if one.data == "[DONE]" {
			break
		}
		chunk, err := decode([]byte(one.data))
		if err != nil {
			return nil, err
		}
		for key, value := range chunk {
			if key != "choices" && value != nil {
				answer[key] = value
			}
		}
		for _, part := range objects(chunk["choices"]) {
			at, ok := indexOf(part["index"], len(choices))
			if !ok {
				return nil, errUnread
			}
			if at == len(choices) {
				choices = append(choices, object{"index": part["index"], "message": object{}})
			}
			choice := choices[at].(object)
			if err := grow(choice["message"].(object), inner(part["delta"])); err != nil {
				return nil, err
			}
			if part["finish_reason"] != nil {
				choice["finish_reason"] = part["finish_reason"]
			}
		}
	}
	answer["choices"] = choices
	return answer, nil
}

// indexOf gives a place in a list or just behind its end; any other is no place.
func indexOf(value any, size int) (int, bool) {
	number, ok := value.(json.Number)
	if !ok {
		return 0, false
	}
	at, err := number.Int64()
	return int(at), err == nil && at >= 0 && at <= int64(size)
}

// grow adds a delta: texts are appended, lists by their items' `index`, and what is not text is replaced.
func grow(into, delta object) error {
	for key, value := range delta {
		switch given := value.(type) {
		case nil:
		case string:
			if key == "id" || key == "type" || key == "role" || key == "name" {
				into[key] = given
				continue
			}
			into[key] = text(into[key]) + given
		case object:
			if inner(into[key]) == nil {
				into[key] = object{}
			}
			if err := grow(inner(into[key]), given); err != nil {
				return err
			}
		case []any:
			items, _ := into[key].([]any)
			for _, item := range objects(given) {
				at, ok := indexOf(item["index"], len(items))
				if !ok {
					return errUnread
				}
				if at == len(items) {
					items = append(items, object{})
				}
				if err := grow(inner(items[at]), copyOf(item, object{"index": nil})); err != nil {
					return err
				}
			}
			into[key] = items
		default:
			into[key] = given
		}
	}
	return nil
}

func (chat) stream(answer object) []event {
	var events []event
	head := copyOf(answer, object{"choices": nil, "usage": nil, "object": "chat.completion.chunk"})
	chunk := func(choice object) {
		events = append(events, spell("", copyOf(head, object{"choices": []any{choice}})))
	}
	for _, choice := range objects(answer["choices"]) {
		delta := copyOf(inner(choice["message"]), nil)
		if calls := objects(delta["tool_calls"]); calls != nil {
			numbered := []any{}
			for at, one := range calls {
				numbered = append(numbered, copyOf(one, object{"index": at}))
			}
			delta["tool_calls"] = numbered
		}
		index := choice["index"]
		events = append(events, spell("", copyOf(head, object{"choices": []any{object{
			"index": index, "delta": delta, "finish_reason": nil,
		}}})))
		chunk(object{"index": index, "delta": object{}, "finish_reason": choice["finish_reason"]})
	}
	if answer["usage"] != nil {
		events = append(events, spell("", copyOf(head, object{"choices": []any{}, "usage": answer["usage"]})))
	}
	return append(events, event{data: "[DONE]"})
}
