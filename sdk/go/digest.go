package aegis

import (
	"crypto/sha256"
	"encoding/hex"
	"unicode/utf8"
)

const algorithm = "sha-256:"

func sha256Text(data []byte) string {
	sum := sha256.Sum256(data)
	return algorithm + hex.EncodeToString(sum[:])
}

// CallDigest gives the digest of a call: SHA-256 over the canonical JSON of {arguments, server, tool}.
//
// Over the arguments as submitted it is the request digest, over those that will run it is the call digest. An empty
// server means that there is none.
func CallDigest(server, tool string, arguments any) (string, error) {
	written, err := Canonical(arguments)
	if err != nil {
		return "", err
	}
	return digestOf(server, tool, written), nil
}

func digestOf(server, tool string, arguments []byte) string {
	out := append([]byte(`{"arguments":`), arguments...)
	out = append(out, `,"server":`...)
	if server == "" {
		out = append(out, "null"...)
	} else {
		out = appendText(out, server)
	}
	out = appendText(append(out, `,"tool":`...), tool)
	return sha256Text(append(out, '}'))
}

// KeyID gives the identifier of a public key: the first 128 bits of its SHA-256, in hex.
func KeyID(public []byte) string {
	sum := sha256.Sum256(public)
	return hex.EncodeToString(sum[:])[:32]
}

// CallCommitment commits a leaf of the log to both digests of a call under salt.
func CallCommitment(salt []byte, requestDigest, callDigest string) string {
	data := append([]byte("aegis/call-commitment/v1\x00"), salt...)
	data = append(data, requestDigest...)
	data = append(data, 0)
	return sha256Text(append(data, callDigest...))
}

// PayloadCommitment commits a leaf of the log to the payload that is stored beside it, under salt.
func PayloadCommitment(salt, payload []byte) string {
	data := append([]byte("aegis/payload-commitment/v1\x00"), salt...)
	return sha256Text(append(data, payload...))
}

// Mask hides all of a text but its first and last two characters; short text is hidden whole.
func Mask(text string) string {
	if text == "" {
		return ""
	}
	if utf8.RuneCountInString(text) <= 8 {
		return "****"
	}
	runes := []rune(text)
	return string(runes[:2]) + "****" + string(runes[len(runes)-2:])
}

// MaskJSON gives a JSON value with every string masked and every number hidden; keys and shape stay.
func MaskJSON(data []byte) ([]byte, error) {
	reader := jsonReader{data: data}
	value, err := reader.whole()
	if err != nil {
		return nil, invalid(err.Error())
	}
	return appendCanonical(nil, masked(value)), nil
}

func masked(value any) any {
	switch given := value.(type) {
	case string:
		return Mask(given)
	case jsonNumber:
		return "****"
	case []any:
		for i, item := range given {
			given[i] = masked(item)
		}
	case jsonObject:
		for i, member := range given {
			given[i].value = masked(member.value)
		}
	}
	return value
}
