package aegis

import (
	"context"
	"crypto/ed25519"
	"encoding/base64"
	"sync"
	"time"
)

const (
	permitType     = "aegis-permit+jwt"
	permitLifetime = 60      // seconds
	permitSkew     = 30      // seconds that a verifier's clock may be behind the gateway's
	maxRemembered  = 100_000 // permits of the last minute: a full memory refuses, and forgets nothing too early
)

// PermitVerifier is whoever redeems permits: a [Client] (at the gateway) or [OfflinePermits] (once per verifier).
type PermitVerifier interface {
	// Redeem uses up a permit for exactly this tool, server and arguments, and gives its identifier.
	Redeem(ctx context.Context, permit string, call ToolCall) (string, error)
}

// OfflinePermits verifies permits against public keys, without the gateway.
//
// Whether another verifier took the permit before, and whether its agent was stopped, only the gateway knows: a permit
// opens once per verifier, and one that a person approved, or whose call cannot be undone, is refused here.
type OfflinePermits struct {
	// Now gives the time; by default time.Now.
	Now  func() time.Time
	keys map[string]ed25519.PublicKey
	lock sync.Mutex
	seen map[string]int64
}

// NewOfflinePermits makes a verifier of the set of /.well-known/jwks.json or the keys.json of a log; only keys of the
// purpose `permit` that are in force count.
func NewOfflinePermits(keys []byte) (*OfflinePermits, error) {
	refusal := &PermitInvalid{Code: "no_permit_key", Status: 403, Message: "the document holds no key that signs permits"}
	document, err := readObject(keys)
	if err != nil {
		return nil, refusal
	}
	found := map[string]ed25519.PublicKey{}
	listed, _ := document.find("keys")
	items, _ := listed.([]any)
	for _, item := range items {
		key, _ := item.(jsonObject)
		if purpose, _ := key.text("purpose"); purpose != "permit" {
			continue
		}
		if _, ended := key.find("until"); ended {
			continue
		}
		kid, named := key.text("kid")
		text, encoding := "", base64.StdEncoding
		if text, _ = key.text("public"); text == "" {
			text, _ = key.text("x")
			encoding = base64.RawURLEncoding
		}
		public, err := encoding.DecodeString(text)
		if err != nil || len(public) != ed25519.PublicKeySize || !named {
			return nil, refusal
		}
		found[kid] = public
	}
	if len(found) == 0 {
		return nil, refusal
	}
	return &OfflinePermits{Now: time.Now, keys: found, seen: map[string]int64{}}, nil
}

var permitTexts = []string{
	"sub", "aud", "tool", "session", "call_id", "call_digest", "decision_id", "mode", "jti",
}

// readPermit reads claims that are exactly those of a permit.
func readPermit(claims jsonObject) (texts map[string]string, issued, expires int64, online, ok bool) {
	texts = map[string]string{}
	for _, name := range permitTexts {
		text, present := claims.text(name)
		if !present {
			return nil, 0, 0, false, false
		}
		texts[name] = text
	}
	expected := len(permitTexts) + 5
	server, present := claims.find("server")
	text, isText := server.(string)
	if !present || (server != nil && !isText) {
		return nil, 0, 0, false, false
	}
	texts["server"] = text
	if approval, given := claims.find("approval_id"); given {
		expected++
		if _, isText := approval.(string); approval != nil && !isText {
			return nil, 0, 0, false, false
		}
	}
	issued, hasIssued := claims.whole("iat")
	expires, hasExpires := claims.whole("exp")
	_, hasReceipt := claims.whole("receipt")
	value, _ := claims.find("online")
	online, hasOnline := value.(bool)
	return texts, issued, expires, online,
		hasIssued && hasExpires && hasReceipt && hasOnline && len(claims) == expected
}

// Redeem takes a permit for exactly this call, once at this verifier.
func (o *OfflinePermits) Redeem(_ context.Context, permit string, call ToolCall) (string, error) {
	written, err := Canonical(call.Arguments)
	if err != nil {
		return "", err
	}
	claims, err := verifyToken(permit, permitType, o.keys)
	if err != nil {
		return "", refusePermit("permit_invalid", 403, "this is no permit of this deployment")
	}
	texts, issued, expires, online, ok := readPermit(claims)
	if !ok {
		return "", refusePermit("permit_invalid", 403, "this is no permit of this deployment")
	}
	server := firstOf(call.Server, texts["server"])
	now := o.Now().Unix()
	switch {
	// (1) A permit of a call that nobody would have stopped opens nothing.
	case texts["mode"] != "enforce":
		return "", refusePermit("permit_observed", 403, "this permit was given while calls were only observed")
	// (2) Exactly this call.
	case texts["tool"] != call.Tool, texts["server"] != server,
		texts["call_digest"] != digestOf(server, call.Tool, written):
		return "", refusePermit("permit_other_call", 403, "this permit is for another call")
	// (3) In time.
	case expires <= now, expires-issued > permitLifetime:
		return "", refusePermit("permit_expired", 409, "this permit is over")
	case issued > now+permitSkew:
		return "", refusePermit("permit_expired", 409, "this permit is from the future")
	case online:
		return "", refusePermit("permit_online", 403, "this permit is redeemed at the gateway alone")
	}
	o.lock.Lock()
	defer o.lock.Unlock()
	if _, used := o.seen[texts["jti"]]; used {
		return "", refusePermit("permit_redeemed", 409, "this permit was used here before")
	}
	if len(o.seen) >= maxRemembered {
		for id, ends := range o.seen { // what is over is refused for its time alone
			if ends <= now {
				delete(o.seen, id)
			}
		}
	}
	if len(o.seen) >= maxRemembered {
		return "", refusePermit("verifier_full", 409, "too many permits were used within a minute")
	}
	o.seen[texts["jti"]] = expires
	return texts["jti"], nil
}

func refusePermit(code string, status int, message string) error {
	return &PermitInvalid{Code: code, Status: status, Message: message}
}
