// A tool of langchaingo that is decided before it runs; give the wrapped list to an agent.
package main

import (
	"context"
	"fmt"
	"log"

	aegis "github.com/aegis-guard/aegis/sdk/go"
	aegislangchain "github.com/aegis-guard/aegis/sdk/go/langchain"
	"github.com/tmc/langchaingo/tools"
)

func main() {
	gateway, err := aegis.New(aegis.Options{})
	if err != nil {
		log.Fatal(err)
	}
	list := aegislangchain.Tools(&aegis.Guard{Decider: gateway}, tools.Calculator{})
	ctx := aegis.WithSession(context.Background(), "example-go")
	fmt.Println(list[0].Call(ctx, "6 * 7"))
}
