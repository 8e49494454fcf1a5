// A function that runs only when the gateway of AEGIS_URL and AEGIS_API_KEY allows its call.
package main

import (
	"context"
	"fmt"
	"log"
	"os"

	aegis "github.com/aegis-guard/aegis/sdk/go"
)

type read struct {
	Path string `json:"path"`
}

func main() {
	client, err := aegis.New(aegis.Options{})
	if err != nil {
		log.Fatal(err)
	}
	guard := &aegis.Guard{Decider: client}
	readFile := aegis.Protect(guard, "read_file", func(_ context.Context, asked read) (string, error) {
		data, err := os.ReadFile(asked.Path)
		return string(data), err
	})
	ctx := aegis.WithSession(context.Background(), "example-go")
	for _, path := range os.Args[1:] {
		text, err := readFile(ctx, read{path})
		fmt.Printf("%s: %d bytes, %v\n", path, len(text), err)
	}
}
