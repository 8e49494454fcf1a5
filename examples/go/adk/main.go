// An agent of the Agent Development Kit whose tools are decided before they run.
package main

import (
	"context"
	"fmt"
	"log"

	aegis "github.com/aegis-guard/aegis/sdk/go"
	aegisadk "github.com/aegis-guard/aegis/sdk/go/adk"
	"google.golang.org/adk/v2/agent"
	"google.golang.org/adk/v2/agent/llmagent"
	"google.golang.org/adk/v2/model/gemini"
	"google.golang.org/adk/v2/tool/functiontool"
	"google.golang.org/genai"
)

func main() {
	gateway, err := aegis.New(aegis.Options{})
	if err != nil {
		log.Fatal(err)
	}
	read, err := functiontool.New(functiontool.Config{Name: "read_file", Description: "Read a file"},
		func(_ agent.Context, file struct{ Path string }) (map[string]any, error) {
			return map[string]any{"text": "the text of " + file.Path}, nil
		})
	if err != nil {
		log.Fatal(err)
	}
	model, err := gemini.NewModel(context.Background(), "gemini-3-pro", &genai.ClientConfig{})
	if err != nil {
		log.Fatal(err)
	}
	tools := aegisadk.Tools(&aegis.Guard{Decider: gateway}, read)
	reader, err := llmagent.New(llmagent.Config{Name: "reader", Model: model, Tools: tools})
	fmt.Println(reader.Name(), err) // give it to a runner, under a context of `aegis.WithSession`
}
