// A tool runner of anthropic-sdk-go whose tools are decided where their bodies run.
package main

import (
	"context"
	"fmt"
	"log"
	"os"

	aegis "github.com/aegis-guard/aegis/sdk/go"
	aegisanthropic "github.com/aegis-guard/aegis/sdk/go/anthropic"
	"github.com/anthropics/anthropic-sdk-go"
	"github.com/anthropics/anthropic-sdk-go/toolrunner"
)

type read struct {
	Path string `json:"path"`
}

func main() {
	gateway, err := aegis.New(aegis.Options{})
	tool, failed := toolrunner.NewBetaToolFromJSONSchema("read_file", "read a file",
		func(_ context.Context, asked read) (anthropic.BetaToolResultBlockParamContentUnion, error) {
			data, err := os.ReadFile(asked.Path)
			return anthropic.BetaToolResultBlockParamContentUnion{OfText: &anthropic.BetaTextBlockParam{Text: string(data)}}, err
		})
	if err != nil || failed != nil {
		log.Fatal(err, failed)
	}
	client := anthropic.NewClient()
	params := anthropic.BetaToolRunnerParams{BetaMessageNewParams: anthropic.BetaMessageNewParams{
		Model: "claude-sonnet-4-5", MaxTokens: 1_000,
		Messages: []anthropic.BetaMessageParam{anthropic.NewBetaUserMessage(anthropic.NewBetaTextBlock("Read notes.txt"))},
	}}
	tools := aegisanthropic.Tools(&aegis.Guard{Decider: gateway}, tool)
	message, err := client.Beta.Messages.NewToolRunner(tools, params).RunToCompletion(context.Background())
	fmt.Println(message, err)
}
