package aegis

import (
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"strconv"
)

// PermitHeader carries the permit of a request to a tool server.
const PermitHeader = "Aegis-Permit"

const maxToolBody = 4 * 1_048_576

// ToolServer says which tool each path of a server is, and what of it runs nothing.
type ToolServer struct {
	// Tools maps a path to the name of the tool that it is; every other path is refused.
	Tools map[string]string
	// Server is the namespace that is part of the tools' identity.
	Server string
	// OpenPaths run nothing, such as a health check.
	OpenPaths []string
	// MaxBytes is how large a body may be; by default 4 MiB.
	MaxBytes int64
}

// RequirePermits puts a tool server behind permits: every request is one call, its body is exactly the call's
// arguments, and it runs only with a permit for them, which is used up before.
//
//	(1) the path names the tool, and nothing but the body carries arguments
//	(2) the body is bounded, strict JSON
//	(3) the permit of the header is redeemed for exactly this call
//	(4) the handler gets the very bytes that were verified
//
// Refusals have the shape {"error": {"code", "message", "hint"}}.
func RequirePermits(verifier PermitVerifier, tools ToolServer, next http.Handler) http.Handler {
	limit := tools.MaxBytes
	if limit <= 0 {
		limit = maxToolBody
	}
	open := map[string]bool{}
	for _, path := range tools.OpenPaths {
		open[path] = true
	}
	return http.HandlerFunc(func(writer http.ResponseWriter, request *http.Request) {
		if open[request.URL.Path] {
			next.ServeHTTP(writer, request)
			return
		}
		body, err := permitted(verifier, tools, limit, request)
		if err != nil {
			refuse(writer, err)
			return
		}
		verified := request.Clone(request.Context()) // (4)
		verified.Header.Del(PermitHeader)
		verified.Header.Del("Transfer-Encoding")
		verified.Header.Set("Content-Length", strconv.Itoa(len(body)))
		verified.Body, verified.ContentLength = io.NopCloser(bytes.NewReader(body)), int64(len(body))
		verified.TransferEncoding, verified.Trailer = nil, nil
		next.ServeHTTP(writer, verified)
	})
}

func permitted(verifier PermitVerifier, tools ToolServer, limit int64, request *http.Request) ([]byte, error) {
	// (1)
	tool, known := tools.Tools[request.URL.Path]
	if !known || request.Method != http.MethodPost || request.URL.RawQuery != "" || request.URL.ForceQuery {
		return nil, refusePermit("no_tool", 403, "no tool answers such a request")
	}
	permits := request.Header.Values(PermitHeader)
	if len(permits) != 1 || permits[0] == "" {
		return nil, refusePermit("permit_missing", 403, "this tool runs only with a permit")
	}
	// (2)
	given, err := io.ReadAll(io.LimitReader(request.Body, limit+1))
	if err != nil {
		return nil, invalid("the body cannot be read")
	}
	if int64(len(given)) > limit {
		return nil, &InvalidCall{Code: "too_large", Message: "the body is too large", Status: 413}
	}
	body, err := CanonicalJSON(given)
	if err != nil {
		return nil, err
	}
	if body[0] != '{' {
		return nil, invalid("the body is no JSON object")
	}
	// (3)
	call := ToolCall{Tool: tool, Server: tools.Server, Arguments: json.RawMessage(body)}
	if _, err := verifier.Redeem(request.Context(), permits[0], call); err != nil {
		return nil, err
	}
	return body, nil
}

func refuse(writer http.ResponseWriter, err error) {
	code, message, hint, status := "unavailable", "the permit could not be checked", "", 503
	var permit *PermitInvalid
	var misuse *InvalidCall
	switch {
	case errors.As(err, &permit):
		code, message, hint, status = permit.Code, permit.Message, permit.Hint, permit.Status
	case errors.As(err, &misuse):
		code, message, hint, status = misuse.Code, misuse.Message, misuse.Hint, misuse.Status
	}
	shape := map[string]any{"error": map[string]string{"code": code, "message": message, "hint": hint}}
	writer.Header().Set("Content-Type", "application/json")
	writer.WriteHeader(status)
	_ = json.NewEncoder(writer).Encode(shape) // the caller has gone away
}
