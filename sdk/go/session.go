package aegis

import (
	"context"
	"encoding/json"
	"net/http"
	"net/url"
)

// Opening is what a host says of a session when it begins; everything but Session may be left out.
type Opening struct {
	Session string `json:"session"`
	// Task is what the user asked for, in the host's words and never in the model's.
	Task    string          `json:"task,omitempty"`
	Turns   []string        `json:"turns,omitempty"`
	Owner   string          `json:"owner,omitempty"`
	Parent  *ParentCall     `json:"parent,omitempty"`
	Mission string          `json:"mission,omitempty"`
	Tools   json.RawMessage `json:"available_tools,omitempty"`
	Mounts  []string        `json:"mounts,omitempty"`
	Proof   string          `json:"proof,omitempty"`
}

// ParentCall is the session and the call from which a session of a sub-agent was begun.
type ParentCall struct {
	Session string `json:"session"`
	CallID  string `json:"call_id,omitempty"`
}

// OpenedSession is an open session; Fresh says that it was not open before.
type OpenedSession struct {
	Session string
	Receipt Receipt
	Fresh   bool
}

// OpenSession opens a session with the task that the host trusts, and under a mission where one is named.
//
// The same words again find the same session. Where the mission names a holder key, possession is proved here and from
// then on with every call of the session. The error is an *InvalidCall where it is refused, and ErrUnavailable where
// nobody can say.
func (c *Client) OpenSession(ctx context.Context, opening Opening) (*OpenedSession, error) {
	if err := checkName("session", opening.Session); err != nil {
		return nil, err
	}
	opened, status, err := c.post(ctx, "/v1/sessions", opening)
	if refusal, ok := err.(*InvalidCall); ok && opening.Mission != "" && refusal.Code == "proof_invalid" {
		if c.holder == nil {
			return nil, invalid("the mission names a holder key: say `Holder`")
		}
		challenge, _, err := c.post(ctx, "/v1/sessions:challenge", nil)
		if err != nil {
			return nil, err
		}
		audience, known := challenge.text("audience")
		nonce, given := challenge.text("nonce")
		if !known || !given {
			return nil, ErrUnavailable
		}
		opening.Proof = c.holder.proveSession(audience, nonce, opening.Mission, opening.Session)
		opened, status, err = c.post(ctx, "/v1/sessions", opening)
		if err != nil {
			return nil, err
		}
	} else if err != nil {
		return nil, err
	}
	m := &members{object: opened}
	found := &OpenedSession{Session: m.text("session"), Fresh: status == http.StatusCreated}
	receipt := m.receipt()
	if m.wrong || receipt == nil {
		return nil, ErrUnavailable
	}
	found.Receipt = *receipt
	if audience, ok := opened.text("audience"); ok {
		if c.holder == nil {
			return nil, invalid("the mission names a holder key: say `Holder`")
		}
		number, ok := opened.whole("next_number")
		if !ok {
			number = 1
		}
		proving := &prover{holder: c.holder, audience: audience, session: opening.Session}
		proving.next.Store(number)
		c.provers.LoadOrStore(opening.Session, proving) // one that is proved already goes on with its numbers
	}
	return found, nil
}

// UserTurn is one thing that the user said: Number is its place (2 and up; the task is 1) where the host counts, and
// Documents are pasted texts, which count as read.
type UserTurn struct {
	Text      string   `json:"text"`
	Number    int      `json:"turn,omitempty"`
	Documents []string `json:"documents,omitempty"`
}

// Turn tells the gateway what the user said in a session; one that is not open is opened by it.
func (c *Client) Turn(ctx context.Context, session string, turn UserTurn) error {
	if err := checkName("session", session); err != nil {
		return err
	}
	_, _, err := c.post(ctx, "/v1/sessions/"+url.PathEscape(session)+"/turns", turn)
	return err
}

// post sends one object and reads one; nil sends an empty body.
func (c *Client) post(ctx context.Context, target string, value any) (jsonObject, int, error) {
	body := []byte{}
	if value != nil {
		written, err := Canonical(value)
		if err != nil {
			return nil, 0, err
		}
		body = written
	}
	got, err := c.exchange(ctx, http.MethodPost, target, body, c.timeout, false)
	switch {
	case err != nil:
		return nil, 0, ErrUnavailable
	case got.misuse():
		return nil, 0, got.refusal()
	case got.status != http.StatusOK && got.status != http.StatusCreated:
		return nil, 0, ErrUnavailable
	}
	object, err := readObject(got.body)
	if err != nil {
		return nil, 0, ErrUnavailable
	}
	return object, got.status, nil
}

type sessionKey struct{}

// WithSession makes the calls that are enforced under the context part of a session.
func WithSession(ctx context.Context, session string) context.Context {
	return context.WithValue(ctx, sessionKey{}, session)
}

func sessionOf(ctx context.Context) string {
	session, _ := ctx.Value(sessionKey{}).(string)
	return session
}

type permitKey struct{}

// PermitOf gives the permit of the call in whose body the context was given, or an empty text.
func PermitOf(ctx context.Context) string {
	permit, _ := ctx.Value(permitKey{}).(string)
	return permit
}
