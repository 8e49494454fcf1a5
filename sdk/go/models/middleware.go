// Package models judges the calls of tools in the answers of models, for programs that run tools themselves.
//
// It reads three formats: OpenAI's chat completions and responses, and Anthropic's messages, each whole or streamed.
// Other endpoints of the same client pass as they are, and so do tools that the provider runs itself.
package models

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"

	aegis "github.com/aegis-guard/aegis/sdk/go"
)

const maxAnswer = 67_108_864 // bytes of one answer: bounds what a provider can make us hold

// errUnread is an answer or a request in which calls could be that nobody can read.
var errUnread = errors.New("aegis: the model's answer cannot be read, so nothing of it is passed on")

// object is a JSON object whose numbers keep their digits.
type object = map[string]any

// call is one call of a tool in an answer; set puts other arguments in their place.
type call struct {
	id, tool  string
	arguments any
	set       func(decided json.RawMessage)
	item      object
}

// removed is a call that was taken out of an answer, and the sentence that stands for its result.
type removed struct {
	item object
	id   string
	text string
}

// format is how one API spells calls, their results, and a stream of an answer.
type format interface {
	// groups gives the calls of an answer, those of one message together.
	groups(answer object) [][]call
	// take removes calls of one group from the answer; where none is left the answer ends as text.
	take(answer object, group int, gone []removed, left int)
	// putBack restores what was taken out of earlier answers, with its refusals.
	putBack(request object, found func(id string) []removed)
	// results gives the results of calls in a request, each with what replaces it.
	results(request object, seen func(id string, content any) (any, bool))
	// assemble gives the answer that a stream spells, stream the events that spell an answer.
	assemble(events []event) (object, error)
	stream(answer object) []event
	// state is the name under which the provider itself remembers an answer, if it does.
	state(answer object) string
}

func formatOf(path string) format {
	path = strings.TrimSuffix(path, "/")
	switch {
	case strings.HasSuffix(path, "/chat/completions"):
		return chat{}
	case strings.HasSuffix(path, "/messages"):
		return messages{}
	case strings.HasSuffix(path, "/responses") || strings.Contains(path, "/responses/"):
		return responses{}
	}
	return nil
}

// Middleware judges every call of an answer before the program sees it, and every result before the model does.
//
// A call that may not run is taken out of the answer; the model is told in the next request, and where no call is left
// the answer ends as text with the refusal. Held calls wait. A streamed answer is read to its end before anything of it
// is passed on. With the gateway gone no call is passed on.
func Middleware(guard *aegis.Guard) func(*http.Request, func(*http.Request) (*http.Response, error)) (*http.Response, error) {
	known := newMemory()
	return func(request *http.Request, next func(*http.Request) (*http.Response, error)) (*http.Response, error) {
		spoken := formatOf(request.URL.Path)
		if spoken == nil {
			return next(request)
		}
		if err := known.prepare(request, spoken, guard); err != nil {
			return nil, err
		}
		response, err := next(request)
		if err != nil || response.StatusCode < 200 || response.StatusCode > 299 {
			return response, err
		}
		data, err := io.ReadAll(io.LimitReader(response.Body, maxAnswer+1))
		_ = response.Body.Close()
		if err != nil {
			return nil, err
		}
		if len(data) > maxAnswer {
			return nil, errUnread
		}
		streamed := strings.HasPrefix(response.Header.Get("Content-Type"), "text/event-stream")
		data, err = known.judge(request.Context(), guard, spoken, data, streamed)
		if err != nil {
			return nil, err
		}
		response.Body, response.ContentLength = io.NopCloser(bytes.NewReader(data)), int64(len(data))
		response.Header.Del("Content-Length")
		response.TransferEncoding = nil
		return response, nil
	}
}

// judge gives the bytes of an answer with the calls alone that may run.
func (m *memory) judge(
	ctx context.Context, guard *aegis.Guard, spoken format, data []byte, streamed bool,
) ([]byte, error) {
	var answer object
	var err error
	if streamed {
		events, unread := readEvents(data)
		if unread != nil {
			return nil, unread
		}
		answer, err = spoken.assemble(events)
	} else {
		answer, err = decode(data)
	}
	if err != nil {
		return nil, err
	}
	changed := false
	groups := spoken.groups(answer)
	var all []aegis.Attempt
	for _, group := range groups {
		for _, one := range group {
			all = append(all, aegis.Attempt{Tool: one.tool, Arguments: one.arguments, CallID: one.id})
		}
	}
	decided := guard.EnforceAll(ctx, all)
	// From the last group on: taking calls out of one must not move another.
	for at := len(groups) - 1; at >= 0; at-- {
		group := groups[at]
		enforced := decided[len(decided)-len(group):]
		decided = decided[:len(decided)-len(group)]
		var gone []removed
		var left []string
		for i, one := range group {
			switch {
			case !enforced[i].Allowed():
				gone = append(gone, removed{one.item, one.id, enforced[i].Refusal()})
				continue
			case enforced[i].Changed():
				one.set(enforced[i].Arguments)
				changed = true
			}
			left = append(left, one.id)
			m.allow(one.id, enforced[i])
		}
		if len(gone) == 0 {
			continue
		}
		changed = true
		spoken.take(answer, at, gone, len(left))
		if name := spoken.state(answer); name != "" {
			m.remember(name, gone)
		}
		if len(left) > 0 {
			m.remember(left[0], gone)
		}
	}
	switch {
	case !changed:
		return data, nil
	case streamed:
		return writeEvents(spoken.stream(answer)), nil
	}
	return json.Marshal(answer)
}

// prepare rewrites a request: refused calls are put back, and results are judged before the model reads them.
func (m *memory) prepare(request *http.Request, spoken format, guard *aegis.Guard) error {
	if request.Body == nil || request.Method != http.MethodPost {
		return nil
	}
	data, err := io.ReadAll(io.LimitReader(request.Body, maxAnswer+1))
	_ = request.Body.Close()
	if err != nil {
		return err
	}
	body, err := decode(data)
	if err != nil || len(data) > maxAnswer {
		return fmt.Errorf("aegis: the request to the model cannot be read: %w", errUnread)
	}
	spoken.results(body, func(id string, content any) (any, bool) {
		return m.observe(request.Context(), guard, id, content)
	})
	spoken.putBack(body, m.refused)
	written, err := json.Marshal(body)
	if err != nil {
		return err
	}
	request.Body, request.ContentLength = io.NopCloser(bytes.NewReader(written)), int64(len(written))
	request.GetBody = func() (io.ReadCloser, error) { return io.NopCloser(bytes.NewReader(written)), nil }
	return nil
}

func decode(data []byte) (object, error) {
	// Read strictly first: two readers of one text must not see two calls.
	if _, err := aegis.CanonicalJSON(data); err != nil {
		return nil, errUnread
	}
	decoder := json.NewDecoder(bytes.NewReader(data))
	decoder.UseNumber()
	var found object
	if err := decoder.Decode(&found); err != nil || found == nil {
		return nil, errUnread
	}
	return found, nil
}

func objects(value any) []object {
	items, _ := value.([]any)
	var found []object
	for _, item := range items {
		if one, ok := item.(object); ok {
			found = append(found, one)
		}
	}
	return found
}

func text(value any) string {
	found, _ := value.(string)
	return found
}

func inner(value any) object {
	found, _ := value.(object)
	return found
}

// spelt gives arguments that are spelt as text; what is no JSON is refused where it is decided.
func spelt(value any) any {
	written := text(value)
	if strings.TrimSpace(written) == "" {
		written = "{}"
	}
	return json.RawMessage(written)
}

func joined(gone []removed) string {
	var said []string
	for _, one := range gone {
		said = append(said, one.text)
	}
	return strings.Join(said, "\n")
}

// without gives a list without the items that were taken out.
func without(value any, gone []removed) []any {
	items, _ := value.([]any)
	left := []any{}
	for _, item := range items {
		taken := false
		for _, one := range gone {
			taken = taken || same(item, one.item)
		}
		if !taken {
			left = append(left, item)
		}
	}
	return left
}
