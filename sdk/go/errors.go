package aegis

import (
	"errors"
	"fmt"
)

// ErrUnavailable is the gateway's silence where no decision can stand for it: at the opening of a session.
var ErrUnavailable = errors.New("aegis: the gateway gave no usable answer")

// InvalidCall is misuse: a call that can never be decided as it stands, or that the credential has no right to.
//
// Code is the stable word of the error shape, Status the HTTP status that stands for it.
type InvalidCall struct {
	Code, Message, Hint string
	Status              int
}

func (e *InvalidCall) Error() string {
	if e.Hint == "" {
		return "aegis: " + e.Message
	}
	return fmt.Sprintf("aegis: %s (%s)", e.Message, e.Hint)
}

func invalid(message string) error {
	return &InvalidCall{Code: "malformed", Message: message, Status: 422}
}

// PermitInvalid is a permit that opens nothing: 403 for another call, signature or audience; 409 when it was used, is
// over or was revoked; 503 where the gateway cannot be asked.
type PermitInvalid struct {
	Code, Message, Hint string
	Status              int
}

func (e *PermitInvalid) Error() string { return "aegis: " + e.Message }

// Blocked is the refusal of a call, or of its result.
type Blocked struct {
	Tool string
	// Decision is the refusal; of a result that was withheld it is that of its call with the result's reason.
	Decision *Decision
	// Refusal is the sentence that a model may be given as the result of the call.
	Refusal string
}

func (e *Blocked) Error() string { return "aegis: " + e.Refusal }

// StreamCut is a streamed result of which nothing more may be used.
type StreamCut struct{ Decision *ResultDecision }

func (e *StreamCut) Error() string { return "aegis: the result was cut: " + e.Decision.Message }
