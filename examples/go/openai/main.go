// An agent on openai-go whose calls are judged before the program sees them.
package main

import (
	"context"
	"fmt"
	"log"

	aegis "github.com/aegis-guard/aegis/sdk/go"
	aegisopenai "github.com/aegis-guard/aegis/sdk/go/openai"
	"github.com/openai/openai-go/v3"
)

func main() {
	gateway, err := aegis.New(aegis.Options{})
	if err != nil {
		log.Fatal(err)
	}
	client := openai.NewClient(aegisopenai.Middleware(&aegis.Guard{Decider: gateway}))
	answer, err := client.Chat.Completions.New(context.Background(), openai.ChatCompletionNewParams{
		Model:    openai.ChatModelGPT4o,
		Messages: []openai.ChatCompletionMessageParamUnion{openai.UserMessage("Read notes.txt")},
	})
	if err != nil {
		log.Fatal(err)
	}
	for _, call := range answer.Choices[0].Message.ToolCalls { // only what may run is here
		fmt.Println(call.Function.Name, call.Function.Arguments)
	}
	fmt.Println(answer.Choices[0].Message.Content)
}
