package aegis

import (
	"crypto/ed25519"
	"encoding/base64"
	"errors"
	"strings"
)

// Compact JWS (RFC 7515) with Ed25519 alone (RFC 8037); every kind of token has its own pinned typ. `none`, other
// algorithms, `crit` and embedded keys are refused before any signature is looked at (RFC 8725).

const maxTokenChars = 262_144 // a token is decoded before it is believed: bounds that work

var (
	errToken  = errors.New("the token is malformed, of another type, or signed by nobody who is trusted")
	base64URL = base64.RawURLEncoding.Strict()
)

func signToken(key ed25519.PrivateKey, typ, claims string) string {
	kid := KeyID(key.Public().(ed25519.PublicKey))
	header := `{"alg":"EdDSA","kid":"` + kid + `","typ":"` + typ + `"}`
	signed := base64URL.EncodeToString([]byte(header)) + "." + base64URL.EncodeToString([]byte(claims))
	return signed + "." + base64URL.EncodeToString(ed25519.Sign(key, []byte(signed)))
}

// verifyToken reads the claims of a token of typ whose key is trusted and whose signature holds.
func verifyToken(token, typ string, keys map[string]ed25519.PublicKey) (jsonObject, error) {
	parts := strings.Split(token, ".")
	if len(token) > maxTokenChars || len(parts) != 3 || strings.ContainsAny(token, "\r\n") {
		return nil, errToken
	}
	var decoded [3][]byte
	for i, part := range parts {
		data, err := base64URL.DecodeString(part)
		if err != nil {
			return nil, errToken
		}
		decoded[i] = data
	}
	header, err := readObject(decoded[0])
	if err != nil || len(header) != 3 {
		return nil, errToken
	}
	algorithm, _ := header.text("alg")
	named, _ := header.text("typ")
	kid, _ := header.text("kid")
	public, trusted := keys[kid]
	if algorithm != "EdDSA" || named != typ || !trusted {
		return nil, errToken
	}
	if !ed25519.Verify(public, []byte(parts[0]+"."+parts[1]), decoded[2]) {
		return nil, errToken
	}
	claims, err := readObject(decoded[1])
	if err != nil {
		return nil, errToken
	}
	return claims, nil
}
