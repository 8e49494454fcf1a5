package models

import (
	"bytes"
	"encoding/json"
	"strings"
	"unicode/utf8"
)

// event is one server-sent event (WHATWG HTML, section 9.2).
type event struct{ name, data string }

func readEvents(data []byte) ([]event, error) {
	if !utf8.Valid(data) {
		return nil, errUnread
	}
	whole := strings.NewReplacer("\r\n", "\n", "\r", "\n").Replace(string(data))
	var events []event
	var current event
	var lines []string
	for _, line := range append(strings.Split(whole, "\n"), "") {
		field, value, _ := strings.Cut(line, ":")
		value = strings.TrimPrefix(value, " ")
		switch {
		case line == "":
			if len(lines) > 0 {
				current.data = strings.Join(lines, "\n")
				events = append(events, current)
			}
			current, lines = event{}, nil
		case field == "event":
			current.name = value
		case field == "data":
			lines = append(lines, value)
		}
	}
	return events, nil
}

func writeEvents(events []event) []byte {
	var out bytes.Buffer
	for _, one := range events {
		if one.name != "" {
			out.WriteString("event: " + one.name + "\n")
		}
		out.WriteString("data: " + one.data + "\n\n")
	}
	return out.Bytes()
}

// spell writes an event's data; values that were decoded can be encoded.
func spell(name string, value any) event {
	data, _ := json.Marshal(value)
	return event{name, string(data)}
}

func copyOf(value object, changes object) object {
	made := object{}
	for key, one := range value {
		made[key] = one
	}
	for key, one := range changes {
		if one == nil {
			delete(made, key)
			continue
		}
		made[key] = one
	}
	return made
}
