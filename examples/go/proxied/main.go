// An agent on openai-go through the gateway, without any package of ours: the base URL and the key are all that differs.
// OPENAI_BASE_URL=http://127.0.0.1:8787/v1  OPENAI_API_KEY=aegis_...
package main

import (
	"context"
	"fmt"
	"log"

	"github.com/openai/openai-go/v3"
	"github.com/openai/openai-go/v3/shared"
)

func main() {
	client := openai.NewClient()
	ask := openai.ChatCompletionNewParams{Model: openai.ChatModelGPT4o,
		Messages: []openai.ChatCompletionMessageParamUnion{openai.UserMessage("What is in the report?")},
		Tools: []openai.ChatCompletionToolUnionParam{openai.ChatCompletionFunctionTool(shared.FunctionDefinitionParam{
			Name:       "read_file",
			Parameters: shared.FunctionParameters{"properties": map[string]any{"path": map[string]any{"type": "string"}}},
		})},
	}
	for {
		answer, err := client.Chat.Completions.New(context.Background(), ask)
		if err != nil {
			log.Fatal(err)
		}
		said := answer.Choices[0].Message
		if len(said.ToolCalls) == 0 {
			fmt.Println(said.Content)
			return
		}
		ask.Messages = append(ask.Messages, said.ToParam())
		for _, call := range said.ToolCalls { // only what may run is here
			fmt.Println(call.Function.Name, call.Function.Arguments)
			ask.Messages = append(ask.Messages, openai.ToolMessage("the text of the file", call.ID))
		}
	}
}
