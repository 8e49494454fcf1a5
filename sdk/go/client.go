package aegis

import (
	"bytes"
	"context"
	"io"
	"net/http"
	"net/url"
	"os"
	"strconv"
	"strings"
	"sync"
	"time"
)

// Client speaks to a gateway and fails closed.
//
// Every transport error, time-out, 409, 429, 5xx, redirect and every answer that the contract does not allow for the
// very call is a block decision; any other 4xx is an *InvalidCall. Safe for concurrent use.
type Client struct {
	endpoint *endpoint
	http     *http.Client
	header   http.Header
	agent    string
	timeout  time.Duration
	holder   *Holder
	provers  sync.Map // session -> *prover
}

// New makes a client; nothing is sent yet.
func New(options Options) (*Client, error) {
	if options.Timeout < 0 {
		return nil, invalid("`Timeout` must be positive")
	}
	if options.Timeout == 0 {
		options.Timeout = defaultTimeout
	}
	where, err := endpointOf(options)
	if err != nil {
		return nil, err
	}
	header := http.Header{"Accept": {"application/json"}}
	if key := firstOf(options.APIKey, os.Getenv("AEGIS_API_KEY")); key != "" {
		// A line break would begin another header.
		if strings.ContainsFunc(key, func(char rune) bool { return char < '!' || char > '~' }) {
			return nil, invalid("`APIKey` holds something other than visible ASCII")
		}
		header.Set("Authorization", "Bearer "+key)
	}
	return &Client{
		endpoint: where, header: header, timeout: options.Timeout, holder: options.Holder,
		agent: firstOf(options.Agent, os.Getenv("AEGIS_AGENT")),
		http: &http.Client{Transport: where.transport, CheckRedirect: func(*http.Request, []*http.Request) error {
			return http.ErrUseLastResponse
		}},
	}, nil
}

// Authenticated reports whether every connection proves that its other end is the gateway (TLS, or the socket's owner).
func (c *Client) Authenticated() bool { return c.endpoint.authenticated }

// Close closes the idle connections; the client opens new ones if it is used again.
func (c *Client) Close() { c.endpoint.transport.CloseIdleConnections() }

// answer is one whole answer of the gateway.
type answer struct {
	status     int
	body       []byte
	retryAfter int
}

// exchange sends one request and reads its whole answer; any error means that there is no answer.
//
// again says that asking twice is harmless: then a request whose idle connection turns out to be closed is sent again.
func (c *Client) exchange(
	ctx context.Context, method, target string, body []byte, timeout time.Duration, again bool,
) (*answer, error) {
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	var reader io.Reader
	if body != nil {
		reader = bytes.NewReader(body)
	}
	request, err := http.NewRequestWithContext(ctx, method, c.endpoint.origin+target, reader)
	if err != nil {
		return nil, err
	}
	request.Header = c.header.Clone()
	if body != nil {
		request.Header.Set("Content-Type", "application/json")
	}
	if again {
		request.Header["Idempotency-Key"] = []string{} // tells net/http so, and is not sent (http.Transport)
	}
	response, err := c.http.Do(request)
	if err != nil {
		return nil, err
	}
	defer func() { _ = response.Body.Close() }()
	read, err := io.ReadAll(io.LimitReader(response.Body, maxBodyBytes+1))
	if err != nil {
		return nil, err
	}
	if len(read) > maxBodyBytes {
		return nil, errBadAnswer
	}
	return &answer{response.StatusCode, read, retryAfter(response.Header.Get("Retry-After"))}, nil
}

const maxRetryAfter = 86_400 // a gateway cannot put a caller to sleep for longer than a day

func retryAfter(value string) int {
	if len(value) > 6 || strings.Trim(value, "0123456789") != "" {
		return 0
	}
	seconds, err := strconv.Atoi(value)
	if err != nil {
		return 0
	}
	return min(seconds, maxRetryAfter)
}

// refusal reads the misuse that a 4xx answer reports, whatever its body is.
func (a *answer) refusal() *InvalidCall {
	found := &InvalidCall{
		Code: "refused", Status: a.status,
		Message: "the gateway refused the request with status " + strconv.Itoa(a.status),
	}
	object, err := readObject(a.body)
	if err != nil {
		return found
	}
	inner, _ := object.object("error")
	code, known := inner.text("code")
	message, said := inner.text("message")
	if !known || !said {
		return found
	}
	found.Code, found.Message = code, message
	found.Hint, _ = inner.text("hint")
	return found
}

func (a *answer) misuse() bool { return a.status >= 400 && a.status < 500 && a.status != 429 }

// Decide asks for the decision on a call; the error is an *InvalidCall for misuse alone.
func (c *Client) Decide(ctx context.Context, call ToolCall) (*Decision, error) {
	// The id exists before anything is sent: it is what makes a repetition harmless.
	if call.CallID == "" {
		call.CallID = newCallID()
	}
	if call.Agent == "" {
		call.Agent = c.agent
	}
	request, err := ask(call)
	if err != nil {
		return nil, err
	}
	if found, ok := c.provers.Load(call.Session); ok && call.Session != "" && call.Proof == "" {
		call.Proof = found.(*prover).prove(request.digest)
		if request, err = ask(call); err != nil {
			return nil, err
		}
	}
	got, err := c.exchange(ctx, http.MethodPost, "/v1/decisions", request.body, c.timeout, true)
	if err != nil {
		return refused(request, ReasonUnavailable, 0), nil
	}
	return decided(request, got)
}

// decided gives what an answer means for the call; anything unknown is a refusal.
func decided(request *asked, got *answer) (*Decision, error) {
	reason := ReasonUnavailable
	switch {
	case got.status == 200 || got.status == 202:
		allowed := []Outcome{Allow, Sanitize, Block}
		if got.status == 202 {
			allowed = []Outcome{RequireApproval}
		}
		decision, err := readDecision(got.body, request, allowed...)
		if err != nil {
			return refused(request, ReasonUnavailable, 0), nil
		}
		return decision, nil
	case got.status == 429:
		reason = ReasonRateLimited
	case got.status == 409:
		reason = ReasonConflict
	case got.misuse():
		return nil, got.refusal()
	}
	// The block decision in the body where there is one, and otherwise one made here.
	decision, err := readDecision(got.body, request, Block)
	if err != nil {
		return refused(request, reason, got.retryAfter), nil
	}
	decision.RetryAfter = got.retryAfter
	return decision, nil
}

// Observe asks what a model may see of a result; the error is an *InvalidCall for misuse alone.
func (c *Client) Observe(ctx context.Context, result ToolResult) (*ResultDecision, error) {
	written, err := Canonical(result.Result)
	if err != nil {
		return nil, err
	}
	body := appendText([]byte(`{"decision_id":`), result.DecisionID)
	body = append(append(body, `,"result":`...), written...)
	if result.Provenance != "" {
		body = appendText(append(body, `,"provenance":`...), result.Provenance)
	}
	if result.Further {
		body = append(body, `,"further":true`...)
	}
	got, err := c.exchange(ctx, http.MethodPost, "/v1/results", append(body, '}'), c.timeout, true)
	if err != nil {
		return withheld(ReasonUnavailable), nil
	}
	switch {
	case got.status == 200:
		decision, err := readResult(got.body)
		if err != nil {
			return withheld(ReasonUnavailable), nil
		}
		return decision, nil
	case got.status == 429:
		return withheld(ReasonRateLimited), nil
	case got.status == 409:
		return withheld(ReasonConflict), nil
	case got.misuse():
		return nil, got.refusal()
	}
	return withheld(ReasonUnavailable), nil
}

// Redeem uses up a permit for exactly this call, at the gateway, and gives its identifier; anything but the gateway's
// plain yes is a *PermitInvalid, or an *InvalidCall for misuse.
func (c *Client) Redeem(ctx context.Context, permit string, call ToolCall) (string, error) {
	written, err := Canonical(call.Arguments)
	if err != nil {
		return "", err
	}
	body := appendText(append(append([]byte(`{"arguments":`), written...), `,"permit":`...), permit)
	if call.Server != "" {
		body = appendText(append(body, `,"server":`...), call.Server)
	}
	body = append(appendText(append(body, `,"tool":`...), call.Tool), '}')
	unavailable := &PermitInvalid{
		Code: "unavailable", Status: 503, Message: "the permit could not be redeemed, so it opens nothing",
	}
	got, err := c.exchange(ctx, http.MethodPost, "/v1/permits/verify", body, c.timeout, false)
	if err != nil {
		return "", unavailable
	}
	if got.status == 200 {
		object, err := readObject(got.body)
		valid, _ := object.find("valid")
		id, ok := object.text("permit_id")
		if err != nil || valid != true || !ok {
			return "", unavailable
		}
		return id, nil
	}
	if !got.misuse() {
		return "", unavailable
	}
	said := got.refusal()
	if got.status == 403 || got.status == 409 {
		return "", &PermitInvalid{Code: said.Code, Message: said.Message, Hint: said.Hint, Status: said.Status}
	}
	return "", said
}

const (
	longPoll = 30 * time.Second // that the gateway is asked to hold one request
	pause    = 2 * time.Second  // between requests where the gateway does not hold them
	patience = 60 * time.Second // without any answer after which the gateway counts as gone
)

// Wait gives the decision that a held call comes to, asked for again under the same call id.
//
// It waits until the approval is resolved, the gateway stays away, or the context ends, and then gives a decision that
// does not allow. Only a decision that the gateway gave on asking again can allow.
func (c *Client) Wait(ctx context.Context, call ToolCall, held *Decision) (*Decision, error) {
	call.CallID = held.CallID // or the gateway would take the repetition for a new call
	decision, rest := held, time.Duration(0)
	var silent time.Time
	unanswered := func(seconds int) {
		if silent.IsZero() {
			silent = time.Now()
		}
		rest = max(pause, time.Duration(seconds)*time.Second)
	}
	for decision.Outcome == RequireApproval && decision.Approval != nil {
		if !silent.IsZero() && time.Since(silent) > patience {
			gone := *decision
			gone.Outcome, gone.Reason, gone.Approval = Block, ReasonUnavailable, nil
			gone.Message = sentences[ReasonUnavailable]
			return &gone, nil
		}
		hold := longPoll
		if deadline, ok := ctx.Deadline(); ok {
			hold = min(hold, time.Until(deadline)-rest)
		}
		if hold <= 0 || !sleep(ctx, rest) {
			return decision, nil
		}
		target := "/v1/approvals/" + url.PathEscape(decision.Approval.ID) + "?wait=" + strconv.Itoa(int(hold.Seconds()))
		began := time.Now()
		got, err := c.exchange(ctx, http.MethodGet, target, nil, hold+c.timeout, true)
		switch {
		case ctx.Err() != nil:
			return decision, nil
		case err != nil:
			unanswered(0)
			continue
		case got.misuse():
			return nil, got.refusal()
		case got.status < 200 || got.status >= 300:
			unanswered(got.retryAfter)
			continue
		}
		object, err := readObject(got.body)
		id, _ := object.text("id")
		state, ok := object.text("state")
		if err != nil || !ok || id != decision.Approval.ID {
			unanswered(0)
			continue
		}
		silent = time.Time{}
		if state == "pending" {
			rest = 0
			if time.Since(began) < time.Second { // a gateway that answers at once does not hold requests
				rest = pause
			}
			continue
		}
		rest = pause // should the same approval be asked for again, it is not asked for in a loop
		again, err := c.Decide(ctx, call)
		switch {
		case err != nil:
			return nil, err
		case again.Outcome == Block && (again.Reason == ReasonUnavailable || again.Reason == ReasonRateLimited):
			unanswered(again.RetryAfter) // the approval stands; only the answer is missing
		default:
			decision = again
		}
	}
	return decision, nil
}

func sleep(ctx context.Context, rest time.Duration) bool {
	if rest <= 0 {
		return ctx.Err() == nil
	}
	timer := time.NewTimer(rest)
	defer timer.Stop()
	select {
	case <-ctx.Done():
		return false
	case <-timer.C:
		return true
	}
}
