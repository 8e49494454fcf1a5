// Package openai puts the calls that openai-go hands to a program behind an Aegis gateway.
package openai

import (
	aegis "github.com/aegis-guard/aegis/sdk/go"
	"github.com/aegis-guard/aegis/sdk/go/models"
	"github.com/openai/openai-go/v3/option"
)

// Middleware judges the calls of every answer of the client that it is given to; see [models.Middleware].
//
//	client := openai.NewClient(aegisopenai.Middleware(guard))
func Middleware(guard *aegis.Guard) option.RequestOption {
	return option.WithMiddleware(models.Middleware(guard))
}
