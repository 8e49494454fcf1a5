package aegis

import (
	"crypto/ed25519"
	"encoding/base64"
	"errors"
	"os"
	"path/filepath"
	"strconv"
	"sync/atomic"
	"time"
)

const (
	sessionProofType = "aegis-kb+jwt"
	callProofType    = "aegis-call+jwt"
)

// Holder proves that an agent possesses the key that its mission names (RFC 7800).
type Holder struct {
	key ed25519.PrivateKey
	now func() time.Time
}

// NewHolder makes a holder of the 32 bytes of a private key (RFC 8032, 5.1.5).
func NewHolder(secret []byte) (*Holder, error) {
	if len(secret) != ed25519.SeedSize {
		return nil, invalid("a holder's key has 32 bytes")
	}
	return &Holder{key: ed25519.NewKeyFromSeed(secret), now: time.Now}, nil
}

// LoadHolder reads an agent's key file as `aegis` keeps it; one that others can read is refused.
func LoadHolder(path, agent string) (*Holder, error) {
	refusal := errors.New("aegis: `" + filepath.Base(path) + "` is no key file of this agent that it alone can read")
	named, err := os.Lstat(path) // a link is no file of the agent's own
	if err != nil {
		return nil, errors.Join(refusal, err)
	}
	file, err := os.Open(path)
	if err != nil {
		return nil, errors.Join(refusal, err)
	}
	defer func() { _ = file.Close() }()
	status, err := file.Stat()
	if err != nil || !os.SameFile(named, status) || !status.Mode().IsRegular() ||
		status.Mode().Perm()&0o077 != 0 || status.Size() > 65_536 {
		return nil, refusal
	}
	data := make([]byte, status.Size())
	if _, err := file.ReadAt(data, 0); err != nil {
		return nil, refusal
	}
	object, err := readObject(data)
	purpose, _ := object.text("purpose")
	owner, _ := object.text("agent")
	text, _ := object.text("secret")
	secret, bad := base64.StdEncoding.DecodeString(text)
	if err != nil || bad != nil || purpose != "holder" || owner != agent {
		return nil, refusal
	}
	return NewHolder(secret)
}

// Confirmation gives the member `cnf` by which a mission names this key, as JSON.
func (h *Holder) Confirmation() []byte {
	public := base64URL.EncodeToString(h.key.Public().(ed25519.PublicKey))
	return []byte(`{"jwk":{"crv":"Ed25519","kty":"OKP","x":"` + public + `"}}`)
}

func (h *Holder) proveSession(audience, nonce, mission, session string) string {
	claims := appendText([]byte(`{"aud":`), audience)
	claims = appendText(append(claims, `,"nonce":`...), nonce)
	claims = strconv.AppendInt(append(claims, `,"iat":`...), h.now().Unix(), 10)
	claims = appendText(append(claims, `,"mission_id":`...), mission)
	claims = appendText(append(claims, `,"session":`...), session)
	return signToken(h.key, sessionProofType, string(claims)+"}")
}

func (h *Holder) proveCall(audience, session string, number int64, digest string) string {
	claims := appendText([]byte(`{"aud":`), audience)
	claims = appendText(append(claims, `,"sid":`...), session)
	claims = strconv.AppendInt(append(claims, `,"seq":`...), number, 10)
	claims = appendText(append(claims, `,"calls":[`...), digest)
	return signToken(h.key, callProofType, string(claims)+"]}")
}

// prover numbers and proves the calls of one session.
type prover struct {
	holder            *Holder
	audience, session string
	next              atomic.Int64
}

func (p *prover) prove(digest string) string {
	return p.holder.proveCall(p.audience, p.session, p.next.Add(1)-1, digest)
}
