package models

import "encoding/json"

// responses is OpenAI's responses API.
type responses struct{}

// calling are the items that a program runs, each with the item that carries its result.
var calling = map[string]string{
	"function_call": "function_call_output", "custom_tool_call": "custom_tool_call_output",
	"local_shell_call": "local_shell_call_output", "shell_call": "shell_call_output",
	"apply_patch_call": "apply_patch_call_output", "computer_call": "computer_call_output",
}

func (responses) state(answer object) string { return text(answer["id"]) }

func (responses) groups(answer object) [][]call {
	var group []call
	for _, item := range objects(answer["output"]) {
		if _, runs := calling[text(item["type"])]; !runs {
			continue
		}
		found := call{id: text(item["call_id"]), tool: text(item["name"]), item: item}
		switch text(item["type"]) {
		case "function_call":
			found.arguments = spelt(item["arguments"])
			found.set = func(decided json.RawMessage) { item["arguments"] = string(decided) }
		case "custom_tool_call":
			found.arguments = object{"input": item["input"]}
			found.set = func(decided json.RawMessage) { item["input"] = inputOf(decided) }
		default: // a tool of the host's own that has no name
			name, given := "action", item["action"]
			if text(item["type"]) == "apply_patch_call" {
				name, given = "operation", item["operation"]
			}
			found.tool, found.arguments = text(item["type"]), given
			if given == nil {
				found.arguments = object{}
			}
			found.set = func(decided json.RawMessage) { item[name] = decided }
		}
		group = append(group, found)
	}
	return [][]call{group}
}

func (responses) take(answer object, _ int, gone []removed, left int) {
	output := without(answer["output"], gone)
	if left == 0 {
		said := object{"type": "output_text", "text": joined(gone), "annotations": []any{}}
		output = append(output, object{
			"type": "message", "id": "msg_aegis", "status": "completed", "role": "assistant", "content": []any{said},
		})
	}
	answer["output"] = output
}

func outputOf(gone removed) object {
	return object{"type": calling[text(gone.item["type"])], "call_id": gone.id, "output": gone.text}
}

func (responses) putBack(request object, found func(string) []removed) {
	items, listed := request["input"].([]any)
	var out []any
	// What the provider remembers itself holds the refused calls: their results alone are missing.
	for _, gone := range found(text(request["previous_response_id"])) {
		out = append(out, outputOf(gone))
	}
	if !listed {
		if out != nil {
			said := object{"type": "message", "role": "user", "content": request["input"]}
			request["input"] = append(out, said)
		}
		return
	}
	for _, item := range items {
		out = append(out, item)
		if _, runs := calling[text(inner(item)["type"])]; !runs {
			continue
		}
		for _, gone := range found(text(inner(item)["call_id"])) {
			out = append(out, gone.item, outputOf(gone))
		}
	}
	if out != nil {
		request["input"] = out
	}
}

func (responses) results(request object, seen func(string, any) (any, bool)) {
	for _, item := range objects(request["input"]) {
		for _, kind := range calling {
			if text(item["type"]) != kind {
				continue
			}
			if shown, changed := seen(text(item["call_id"]), item["output"]); changed {
				item["output"] = shownAs(shown)
			}
		}
	}
}

func (responses) assemble(events []event) (object, error) {
	calls := false
	for _, one := range events {
		if one.data == "[DONE]" {
			break
		}
		said, err := decode([]byte(one.data))
		if err != nil {
			return nil, err
		}
		if _, runs := calling[text(inner(said["item"])["type"])]; runs {
			calls = true
		}
		switch text(said["type"]) {
		case "response.completed", "response.incomplete", "response.failed":
			if answer := inner(said["response"]); answer != nil {
				return answer, nil
			}
		}
	}
	if calls {
		return nil, errUnread // a call was announced, and the answer that holds it never came
	}
	return object{}, nil
}

func (responses) stream(answer object) []event {
	number := 0
	next := func(name string, members object) event {
		members["type"], members["sequence_number"] = name, number
		number++
		return spell(name, members)
	}
	begun := copyOf(answer, object{"output": []any{}, "status": "in_progress"})
	events := []event{next("response.created", object{"response": begun})}
	for at, item := range objects(answer["output"]) {
		place := func() object { return object{"output_index": at, "item_id": item["id"]} }
		opened := item
		if text(item["type"]) == "message" {
			opened = copyOf(item, object{"content": []any{}, "status": "in_progress"})
		}
		events = append(events, next("response.output_item.added", object{"output_index": at, "item": opened}))
		switch text(item["type"]) {
		case "function_call":
			events = append(events,
				next("response.function_call_arguments.delta", copyOf(place(), object{"delta": item["arguments"]})),
				next("response.function_call_arguments.done", copyOf(place(), object{"arguments": item["arguments"], "name": item["name"]})))
		case "message":
			for part, content := range objects(item["content"]) {
				if text(content["type"]) != "output_text" {
					continue
				}
				where := copyOf(place(), object{"content_index": part})
				empty := copyOf(content, object{"text": ""})
				events = append(events,
					next("response.content_part.added", copyOf(where, object{"part": empty})),
					next("response.output_text.delta", copyOf(where, object{"delta": content["text"]})),
					next("response.output_text.done", copyOf(where, object{"text": content["text"]})),
					next("response.content_part.done", copyOf(where, object{"part": content})))
			}
		}
		events = append(events, next("response.output_item.done", object{"output_index": at, "item": item}))
	}
	return append(events, next("response.completed", object{"response": answer}))
}
