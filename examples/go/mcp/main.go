// An MCP server over standard input and output whose tools are decided where their bodies run.
package main

import (
	"context"
	"log"
	"os"

	aegis "github.com/aegis-guard/aegis/sdk/go"
	aegismcp "github.com/aegis-guard/aegis/sdk/go/mcp"
	"github.com/modelcontextprotocol/go-sdk/mcp"
)

type read struct {
	Path string `json:"path"`
}

func main() {
	gateway, err := aegis.New(aegis.Options{})
	if err != nil {
		log.Fatal(err)
	}
	server := mcp.NewServer(&mcp.Implementation{Name: "files", Version: "1"}, nil)
	mcp.AddTool(server, &mcp.Tool{Name: "read_file", Description: "read a file"},
		func(_ context.Context, _ *mcp.CallToolRequest, asked read) (*mcp.CallToolResult, any, error) {
			data, err := os.ReadFile(asked.Path)
			return &mcp.CallToolResult{Content: []mcp.Content{&mcp.TextContent{Text: string(data)}}}, nil, err
		})
	aegismcp.Protect(server, &aegis.Guard{Decider: gateway}, "mcp:files")
	log.Fatal(server.Run(context.Background(), &mcp.StdioTransport{}))
}
