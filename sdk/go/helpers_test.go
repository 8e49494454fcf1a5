package aegis

import (
	"bufio"
	"encoding/hex"
	"io"
)

func newReader(source io.Reader) *bufio.Reader { return bufio.NewReader(source) }

func textOf(text *string) string {
	if text == nil {
		return ""
	}
	return *text
}

func unhex(text string) []byte {
	data, err := hex.DecodeString(text)
	if err != nil {
		panic(err)
	}
	return data
}

func unhexAll(texts []string) [][]byte {
	var found [][]byte
	for _, text := range texts {
		found = append(found, unhex(text))
	}
	return found
}
