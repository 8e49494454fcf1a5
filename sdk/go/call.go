package aegis

import (
	"crypto/rand"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"strings"
	"unicode"
	"unicode/utf8"
)

const (
	maxNameChars  = 256    // a name is matched against every selector: bounds that work
	maxTaskChars  = 16_384 // a task is kept with the session: bounds what one caller can store
	maxUnresolved = 1_000  // pointers declared unresolved: bounds what one call can make the gateway walk
	maxProofChars = 16_384 // a proof is parsed before it is believed: bounds that work
)

// ToolCall is one tool call as the model proposed it.
//
// Arguments is anything whose JSON form is an object; nil stands for no arguments. An absent CallID is generated: it is
// what makes a repetition harmless.
type ToolCall struct {
	Tool           string
	Arguments      any
	Server         string
	CallID         string
	Agent          string
	Session        string
	Parent         string
	Turn           *int64
	WantPermit     bool
	Task           string
	MessagesDigest string
	Unresolved     []string
	Proof          string
	// DependsOn are the calls from whose results the arguments are made, Resolves the deferred call that this one is
	// with its arguments filled in.
	DependsOn []string
	Resolves  string
	// Reasoning is why the call is made, as the model or its host tells it: bound to the receipt by a digest, and never
	// believed.
	Reasoning *Reasoning
}

// Reasoning is what a host says of why a call is made; Digest is of all blocks where these are only a part of them.
type Reasoning struct {
	Blocks  []ReasoningBlock `json:"blocks,omitempty"`
	Purpose string           `json:"purpose,omitempty"`
	Digest  string           `json:"digest,omitempty"`
}

// ReasoningBlock is one block: its text where the provider shows it, and the provider's signature over it.
type ReasoningBlock struct {
	Text      string `json:"text,omitempty"`
	Signature string `json:"signature,omitempty"`
}

// ToolResult is what a tool gave back for the call that DecisionID decided; Result is any value with a JSON form.
//
// Further says that it is another text of the call, such as how an attempt failed. Provenance is the compact JWS by
// which the tool signed the result.
type ToolResult struct {
	DecisionID string
	Result     any
	Provenance string
	Further    bool
}

func newCallID() string {
	var id [16]byte
	_, _ = rand.Read(id[:]) // never fails (crypto/rand)
	return hex.EncodeToString(id[:])
}

// asked is a call as it is sent: with its id, its body, and the digest that every answer must carry.
type asked struct {
	call      ToolCall
	arguments []byte
	digest    string
	body      []byte
}

func ask(call ToolCall) (*asked, error) {
	if err := checkCall(call); err != nil {
		return nil, err
	}
	if call.Arguments == nil {
		call.Arguments = json.RawMessage("{}")
	}
	arguments, err := Canonical(call.Arguments)
	if err != nil {
		return nil, err
	}
	if len(arguments) == 0 || arguments[0] != '{' {
		return nil, invalid("`arguments` must be a JSON object")
	}
	body := append([]byte(`{"arguments":`), arguments...)
	member := func(name string, value any) {
		written, _ := Canonical(value)
		body = append(append(appendText(append(body, ','), name), ':'), written...)
	}
	for _, one := range []struct{ name, value string }{
		{"tool", call.Tool}, {"call_id", call.CallID}, {"server", call.Server}, {"agent", call.Agent},
		{"session", call.Session}, {"parent", call.Parent}, {"task", call.Task},
		{"messages_digest", call.MessagesDigest}, {"proof", call.Proof}, {"resolves", call.Resolves},
	} {
		if one.value != "" {
			member(one.name, one.value)
		}
	}
	if call.Turn != nil {
		member("turn", *call.Turn)
	}
	if call.WantPermit {
		member("want_permit", true)
	}
	if len(call.Unresolved) > 0 {
		member("unresolved", call.Unresolved)
	}
	if len(call.DependsOn) > 0 {
		member("depends_on", call.DependsOn)
	}
	if call.Reasoning != nil {
		member("reasoning", call.Reasoning)
	}
	return &asked{
		call: call, arguments: arguments, body: append(body, '}'),
		digest: digestOf(call.Server, call.Tool, arguments),
	}, nil
}

func checkCall(call ToolCall) error {
	if call.Tool == "" {
		return invalid("`tool` must not be empty")
	}
	names := []struct{ name, value string }{
		{"tool", call.Tool}, {"server", call.Server}, {"call_id", call.CallID}, {"agent", call.Agent},
		{"session", call.Session}, {"parent", call.Parent}, {"messages_digest", call.MessagesDigest},
		{"resolves", call.Resolves},
	}
	for _, one := range call.DependsOn {
		names = append(names, struct{ name, value string }{"depends_on", one})
	}
	for _, one := range names {
		if one.value == "" {
			continue
		}
		if err := checkName(one.name, one.value); err != nil {
			return err
		}
	}
	if err := checkText("task", call.Task, maxTaskChars); err != nil {
		return err
	}
	if err := checkText("proof", call.Proof, maxProofChars); err != nil {
		return err
	}
	if call.Turn != nil && (*call.Turn < 0 || *call.Turn >= 1<<53) {
		return invalid("`turn` must be a whole number, zero or more")
	}
	if len(call.Unresolved) > maxUnresolved {
		return invalid(fmt.Sprintf("`unresolved` holds more than %d pointers", maxUnresolved))
	}
	for _, pointer := range call.Unresolved {
		if !utf8.ValidString(pointer) || (pointer != "" && pointer[0] != '/') {
			return invalid("`unresolved` must hold JSON pointers, each empty or starting with `/`")
		}
	}
	return nil
}

// checkName guarantees that a text can be a name: not blank, bounded, without control characters.
func checkName(member, value string) error {
	switch {
	case !utf8.ValidString(value):
		return invalid("`" + member + "` must be UTF-8")
	case strings.TrimSpace(value) == "":
		return invalid("`" + member + "` must not be empty")
	case utf8.RuneCountInString(value) > maxNameChars:
		return invalid(fmt.Sprintf("`%s` must have at most %d characters", member, maxNameChars))
	case strings.ContainsFunc(value, func(char rune) bool {
		return unicode.In(char, unicode.Cc, unicode.Zl, unicode.Zp)
	}):
		return invalid("`" + member + "` must not hold control characters")
	}
	return nil
}

func checkText(member, value string, limit int) error {
	if !utf8.ValidString(value) || utf8.RuneCountInString(value) > limit {
		return invalid(fmt.Sprintf("`%s` must be text of at most %d characters", member, limit))
	}
	return nil
}
