package models

import (
	"context"
	"encoding/json"
	"log/slog"
	"reflect"
	"sync"

	aegis "github.com/aegis-guard/aegis/sdk/go"
)

const maxKnown = 4_096 // calls of which one client remembers what became: bounds memory

// memory is what one client's conversations need: decisions whose results are awaited, refusals to be put back, and
// what was made of results that come again with every request.
type memory struct {
	lock     sync.Mutex
	order    []string
	allowed  map[string]aegis.Enforced
	taken    map[string][]removed
	observed map[string]seenResult
}

type seenResult struct {
	given, shown any
	changed      bool
}

func newMemory() *memory {
	return &memory{allowed: map[string]aegis.Enforced{}, taken: map[string][]removed{}, observed: map[string]seenResult{}}
}

// admit makes room for one more name; the oldest is forgotten.
func (m *memory) admit(name string) {
	m.order = append(m.order, name)
	if len(m.order) > maxKnown {
		oldest := m.order[0]
		m.order = m.order[1:]
		delete(m.allowed, oldest)
		delete(m.taken, oldest)
		delete(m.observed, oldest)
	}
}

func (m *memory) allow(id string, enforced aegis.Enforced) {
	m.lock.Lock()
	defer m.lock.Unlock()
	m.admit(id)
	m.allowed[id] = enforced
}

func (m *memory) remember(id string, gone []removed) {
	m.lock.Lock()
	defer m.lock.Unlock()
	m.admit(id)
	m.taken[id] = gone
}

func (m *memory) refused(id string) []removed {
	m.lock.Lock()
	defer m.lock.Unlock()
	return m.taken[id]
}

// observe gives what the model may see of a result, and whether that is something else than what came.
func (m *memory) observe(ctx context.Context, guard *aegis.Guard, id string, content any) (any, bool) {
	m.lock.Lock()
	enforced, known := m.allowed[id]
	before, asked := m.observed[id]
	m.lock.Unlock()
	if asked && reflect.DeepEqual(before.given, content) {
		return before.shown, before.changed
	}
	if !known {
		slog.Default().Warn("a result came for a call that was not decided here", "call", id)
		return content, false
	}
	found := seenResult{given: content, shown: content}
	switch seen := guard.Observe(ctx, enforced, content); {
	case seen.Withheld():
		found.shown, found.changed = seen.Notice, true
	case seen.Replaced != nil:
		var shown any
		if err := json.Unmarshal(seen.Replaced, &shown); err != nil {
			shown = "the result was withheld: what may be seen of it cannot be read"
		}
		found.shown, found.changed = shown, true
	}
	m.lock.Lock()
	defer m.lock.Unlock()
	m.admit(id)
	m.observed[id] = found
	return found.shown, found.changed
}

// same reports whether a list's item is this very object.
func same(item any, one object) bool {
	found, ok := item.(object)
	return ok && reflect.ValueOf(found).Pointer() == reflect.ValueOf(one).Pointer()
}
