package aegis

import (
	"bytes"
	"context"
	"crypto/ed25519"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

const vectors = "../../conformance"

// ran are the files of vectors that a test of this package has run.
var ran = map[string]bool{}

func load(t *testing.T, name string, into any) {
	t.Helper()
	data, err := os.ReadFile(filepath.Join(vectors, name))
	if err != nil {
		t.Fatal(err)
	}
	if err := json.Unmarshal(data, into); err != nil {
		t.Fatal(err)
	}
	ran[name] = true
}

func TestCanonicalJSON(t *testing.T) {
	var file struct {
		Values  []struct{ Name, JSON, Canonical, SHA256 string }
		Refused []struct{ Name, Base64 string }
	}
	load(t, "canonical.json", &file)
	for _, one := range file.Values {
		got, err := CanonicalJSON([]byte(one.JSON))
		if err != nil || string(got) != one.Canonical || sha256Text(got) != one.SHA256 {
			t.Errorf("%s: %s %v", one.Name, got, err)
		}
		if again, err := CanonicalJSON(got); err != nil || !bytes.Equal(again, got) {
			t.Errorf("%s: not its own canonical form", one.Name)
		}
	}
	for _, one := range file.Refused {
		data, _ := base64.StdEncoding.DecodeString(one.Base64)
		if got, err := CanonicalJSON(data); err == nil {
			t.Errorf("%s: taken as %s", one.Name, got)
		}
	}
}

func TestDigests(t *testing.T) {
	var file struct {
		Calls []struct {
			Name, Tool, Arguments, Digest string
			Server                        *string
		}
		Keys            []struct{ Public, Kid string }
		CallCommitments []struct {
			Salt, Commitment string
			Request          string `json:"request_digest"`
			Call             string `json:"call_digest"`
		} `json:"call_commitments"`
		PayloadCommitments []struct{ Salt, Payload, Commitment string } `json:"payload_commitments"`
	}
	load(t, "digests.json", &file)
	for _, one := range file.Calls {
		got, err := CallDigest(textOf(one.Server), one.Tool, json.RawMessage(one.Arguments))
		if err != nil || got != one.Digest {
			t.Errorf("%s: %s %v", one.Name, got, err)
		}
	}
	for _, one := range file.Keys {
		if got := KeyID(unhex(one.Public)); got != one.Kid {
			t.Errorf("%s: %s", one.Public, got)
		}
	}
	for _, one := range file.CallCommitments {
		if got := CallCommitment(unhex(one.Salt), one.Request, one.Call); got != one.Commitment {
			t.Error(got)
		}
	}
	for _, one := range file.PayloadCommitments {
		if got := PayloadCommitment(unhex(one.Salt), []byte(one.Payload)); got != one.Commitment {
			t.Error(got)
		}
	}
}

func TestMasking(t *testing.T) {
	var file struct {
		Texts  []struct{ Text, Masked string }
		Values []struct{ JSON, Masked string }
	}
	load(t, "masking.json", &file)
	for _, one := range file.Texts {
		if got := Mask(one.Text); got != one.Masked {
			t.Errorf("%q: %q", one.Text, got)
		}
	}
	for _, one := range file.Values {
		if got, err := MaskJSON([]byte(one.JSON)); err != nil || string(got) != one.Masked {
			t.Errorf("%s: %s %v", one.JSON, got, err)
		}
	}
}

func TestWords(t *testing.T) {
	var file struct {
		Outcomes []Outcome
		Verdicts []string
		Risks    []Risk
		Reasons  []struct {
			Reason  Reason
			Message string
		}
		Limits map[string]int
	}
	load(t, "words.json", &file)
	if fmt.Sprint(file.Outcomes) != fmt.Sprint(outcomes) || fmt.Sprint(file.Risks) != fmt.Sprint(risks) {
		t.Error("outcomes or risks differ")
	}
	for _, one := range file.Verdicts {
		if _, ok := wordOf(verdicts, one); !ok {
			t.Errorf("verdict %s is not known", one)
		}
	}
	for _, one := range file.Reasons {
		if _, ok := wordOf(reasons, string(one.Reason)); !ok {
			t.Errorf("reason %s is not known", one.Reason)
		}
		if said, ok := sentences[one.Reason]; ok && said != one.Message {
			t.Errorf("%s: %s", one.Reason, said)
		}
	}
	for name, here := range map[string]int{
		"name_chars": maxNameChars, "task_chars": maxTaskChars, "unresolved": maxUnresolved,
		"proof_chars": maxProofChars, "nesting": maxNesting, "digits": maxDigits,
		"permit_seconds": permitLifetime, "permit_skew_seconds": permitSkew,
	} {
		if file.Limits[name] != here {
			t.Errorf("limit %s is %d", name, file.Limits[name])
		}
	}
	if len(file.Limits) != 8 {
		t.Error("a limit is not compared")
	}
}

type spelt struct {
	Tool, Server, Agent, Session, Parent, Task, Proof string
	CallID                                            string `json:"call_id"`
	Turn                                              *int64
	WantPermit                                        bool   `json:"want_permit"`
	MessagesDigest                                    string `json:"messages_digest"`
	Unresolved                                        []string
	Arguments                                         string
}

func (s spelt) call() ToolCall {
	return ToolCall{
		Tool: s.Tool, Server: s.Server, Agent: s.Agent, Session: s.Session, Parent: s.Parent, Task: s.Task,
		Proof: s.Proof, CallID: s.CallID, Turn: s.Turn, WantPermit: s.WantPermit, MessagesDigest: s.MessagesDigest,
		Unresolved: s.Unresolved, Arguments: json.RawMessage(s.Arguments),
	}
}

func TestRequests(t *testing.T) {
	var file struct {
		Bodies []struct {
			Name, Body string
			Call       spelt
		}
		Refused []struct {
			Name string
			Call spelt
		}
	}
	load(t, "requests.json", &file)
	for _, one := range file.Bodies {
		request, err := ask(one.Call.call())
		if err != nil {
			t.Errorf("%s: %v", one.Name, err)
			continue
		}
		if got, err := CanonicalJSON(request.body); err != nil || string(got) != one.Body {
			t.Errorf("%s: %v\n%.200s\n%.200s", one.Name, err, got, one.Body)
		}
	}
	for _, one := range file.Refused {
		if _, err := ask(one.Call.call()); err == nil {
			t.Errorf("%s was taken", one.Name)
		}
	}
}

// said is an answer of a vector.
type said struct {
	Status  int
	Headers map[string]string
	Body    string
	Raw     *string
	Then    string
}

func (s said) bytes() []byte {
	if s.Raw != nil {
		data, _ := base64.StdEncoding.DecodeString(*s.Raw)
		return data
	}
	head := fmt.Sprintf("HTTP/1.1 %d Said\r\ncontent-length: %d\r\nconnection: close\r\n", s.Status, len(s.Body))
	for name, value := range s.Headers {
		head += name + ": " + value + "\r\n"
	}
	return []byte(head + "\r\n" + s.Body)
}

type received struct{ method, target, body string }

// saying serves one answer after the other, one a connection.
func saying(t *testing.T, answers ...said) (string, *[]received) {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = listener.Close() })
	var got []received
	go func() {
		for _, answer := range answers {
			connection, err := listener.Accept()
			if err != nil {
				return
			}
			request, err := http.ReadRequest(newReader(connection))
			if err != nil {
				continue
			}
			body, _ := io.ReadAll(request.Body)
			got = append(got, received{request.Method, request.RequestURI, string(body)})
			_, _ = connection.Write(answer.bytes())
			if answer.Then == "hang" {
				time.AfterFunc(5*time.Second, func() { _ = connection.Close() })
				continue
			}
			_ = connection.Close()
		}
	}()
	return "http://" + listener.Addr().String(), &got
}

type expected struct {
	Decision map[string]any
	Invalid  *struct {
		Code, Message, Hint string
		Status              int
	} `json:"invalid_call"`
	Refused *struct {
		Code   string
		Status int
	}
	Unavailable bool
	PermitID    string `json:"permit_id"`
	Opened      *struct {
		Session string
		Fresh   bool
		Index   int64
	}
	Allowed bool
	Cut     *struct{ Reason Reason }
}

// differs compares what was found with what a vector expects, member by member.
func differs(want expected, found map[string]any, err error) string {
	if want.Invalid != nil {
		var misuse *InvalidCall
		if !errors.As(err, &misuse) || misuse.Code != want.Invalid.Code || misuse.Status != want.Invalid.Status ||
			(want.Invalid.Message != "" && (misuse.Message != want.Invalid.Message || misuse.Hint != want.Invalid.Hint)) {
			return fmt.Sprintf("%v instead of %v", err, *want.Invalid)
		}
		return ""
	}
	if err != nil {
		return err.Error()
	}
	for name, value := range want.Decision {
		if fmt.Sprint(found[name]) != fmt.Sprint(value) {
			return fmt.Sprintf("%s is %v instead of %v", name, found[name], value)
		}
	}
	if len(want.Decision) == 0 {
		return "the vector expects nothing"
	}
	return ""
}

func receiptMembers(receipt *Receipt) map[string]any {
	if receipt == nil {
		return nil
	}
	return map[string]any{"id": receipt.ID, "index": receipt.Index, "leaf_hash": receipt.LeafHash}
}

func decisionMembers(d *Decision) map[string]any {
	if d == nil {
		return nil
	}
	found := map[string]any{
		"decision": d.Outcome, "verdict": d.Verdict, "risk": d.Risk, "reason": d.Reason, "message": d.Message,
		"call_id": d.CallID, "request_digest": d.RequestDigest, "call_digest": d.CallDigest, "permit": d.Permit,
		"arguments": string(d.Arguments), "receipt": receiptMembers(d.Receipt), "retry_after": d.RetryAfter,
		"missing": d.Missing,
	}
	if d.Approval != nil {
		found["approval"] = map[string]any{
			"id": d.Approval.ID, "expires_at": d.Approval.ExpiresAt, "url": "/v1/approvals/" + d.Approval.ID,
		}
	}
	return found
}

func client(t *testing.T, url string, timeout time.Duration) *Client {
	t.Helper()
	made, err := New(Options{URL: url, APIKey: "aegis-test-key", Timeout: timeout})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(made.Close)
	return made
}

func TestAnswersToCalls(t *testing.T) {
	for _, name := range []string{"decisions.json", "fail_closed.json"} {
		var file struct {
			Call    spelt
			Timeout float64 `json:"timeout_seconds"`
			Cases   []struct {
				Name   string
				Answer said
				Expect expected
			}
		}
		load(t, name, &file)
		for _, one := range file.Cases {
			timeout := 5 * time.Second
			if one.Answer.Then == "hang" {
				timeout = time.Duration(file.Timeout * float64(time.Second))
			}
			url, _ := saying(t, one.Answer)
			decision, err := client(t, url, timeout).Decide(context.Background(), file.Call.call())
			if wrong := differs(one.Expect, decisionMembers(decision), err); wrong != "" {
				t.Errorf("%s: %s: %s", name, one.Name, wrong)
			}
			if name != "fail_closed.json" {
				continue
			}
			url, _ = saying(t, one.Answer)
			ran := false
			guard := &Guard{Decider: client(t, url, timeout), Refuse: true}
			body := Protect(guard, file.Call.Tool, func(context.Context, json.RawMessage) (string, error) {
				ran = true
				return "", nil
			}, ToolOptions{Server: file.Call.Server})
			if _, err := body(context.Background(), json.RawMessage(file.Call.Arguments)); ran || err == nil {
				t.Errorf("%s: the body ran", one.Name)
			}
		}
	}
}

func TestAnswersToResults(t *testing.T) {
	var file struct {
		Request struct{ Method, Target, Body string }
		Cases   []struct {
			Name   string
			Answer said
			Expect expected
		}
	}
	load(t, "results.json", &file)
	for _, one := range file.Cases {
		url, got := saying(t, one.Answer)
		result := ToolResult{DecisionID: "d-1", Result: json.RawMessage(`{"text":"hello","id":9007199254740993}`)}
		d, err := client(t, url, 5*time.Second).Observe(context.Background(), result)
		found := map[string]any{}
		if d != nil {
			found = map[string]any{
				"decision": d.Outcome, "verdict": d.Verdict, "reason": d.Reason, "message": d.Message,
				"result": string(d.Result), "receipt": receiptMembers(d.Receipt),
			}
		}
		if wrong := differs(one.Expect, found, err); wrong != "" {
			t.Errorf("%s: %s", one.Name, wrong)
		}
		compareRequest(t, one.Name, *got, file.Request.Method, file.Request.Target, file.Request.Body)
	}
}

func compareRequest(t *testing.T, name string, got []received, method, target, body string) {
	t.Helper()
	if len(got) != 1 || got[0].method != method || got[0].target != target {
		t.Errorf("%s: asked %v", name, got)
		return
	}
	if sent, err := CanonicalJSON([]byte(got[0].body)); err != nil || string(sent) != body {
		t.Errorf("%s: sent %s", name, got[0].body)
	}
}

func TestHolds(t *testing.T) {
	var file struct {
		Call  spelt
		Cases []struct {
			Name      string
			Exchanges []struct {
				Method, Target, Body string
				Answer               said
			}
			Expect expected
		}
	}
	load(t, "holds.json", &file)
	for _, one := range file.Cases {
		var answers []said
		for _, exchange := range one.Exchanges {
			answers = append(answers, exchange.Answer)
		}
		url, got := saying(t, answers...)
		asking := client(t, url, 5*time.Second)
		held, err := asking.Decide(context.Background(), file.Call.call())
		if err != nil || held.Outcome != RequireApproval {
			t.Errorf("%s: %v %v", one.Name, held, err)
			continue
		}
		decision, err := asking.Wait(context.Background(), file.Call.call(), held)
		if wrong := differs(one.Expect, decisionMembers(decision), err); wrong != "" {
			t.Errorf("%s: %s", one.Name, wrong)
		}
		for i, exchange := range one.Exchanges {
			if i >= len(*got) || (*got)[i].method != exchange.Method || (*got)[i].target != exchange.Target {
				t.Errorf("%s: exchange %d: %v", one.Name, i, *got)
			}
		}
	}
}

func TestRedemptions(t *testing.T) {
	var file struct {
		Call    spelt
		Permit  string
		Request struct{ Method, Target, Body string }
		Cases   []struct {
			Name   string
			Answer said
			Expect expected
		}
	}
	load(t, "redemptions.json", &file)
	for _, one := range file.Cases {
		url, got := saying(t, one.Answer)
		id, err := client(t, url, 5*time.Second).Redeem(context.Background(), file.Permit, file.Call.call())
		if wrong := permitDiffers(one.Expect, id, err); wrong != "" {
			t.Errorf("%s: %s", one.Name, wrong)
		}
		compareRequest(t, one.Name, *got, file.Request.Method, file.Request.Target, file.Request.Body)
	}
}

func permitDiffers(want expected, id string, err error) string {
	var refusal *PermitInvalid
	switch {
	case want.Refused != nil:
		if !errors.As(err, &refusal) || refusal.Code != want.Refused.Code || refusal.Status != want.Refused.Status {
			return fmt.Sprintf("%#v instead of %v", err, *want.Refused)
		}
	case want.Invalid != nil:
		return differs(want, nil, err)
	case err != nil || id == "" || id != want.PermitID:
		return fmt.Sprintf("%s %v", id, err)
	}
	return ""
}

func TestPermitsOffline(t *testing.T) {
	var file struct {
		Now   int64
		Keys  json.RawMessage
		Cases []struct {
			Name     string
			Attempts []struct {
				Permit, Tool, Arguments string
				Server                  *string
				Expect                  expected
			}
		}
	}
	load(t, "permits.json", &file)
	for _, one := range file.Cases {
		verifier, err := NewOfflinePermits(file.Keys)
		if err != nil {
			t.Fatal(err)
		}
		verifier.Now = func() time.Time { return time.Unix(file.Now, 0) }
		for _, attempt := range one.Attempts {
			call := ToolCall{
				Tool: attempt.Tool, Server: textOf(attempt.Server), Arguments: json.RawMessage(attempt.Arguments),
			}
			id, err := verifier.Redeem(context.Background(), attempt.Permit, call)
			if wrong := permitDiffers(attempt.Expect, id, err); wrong != "" {
				t.Errorf("%s: %s", one.Name, wrong)
			}
		}
	}
}

func TestSessions(t *testing.T) {
	var file struct {
		Session, Task string
		Request       struct{ Method, Target, Body string }
		Cases         []struct {
			Name   string
			Answer said
			Expect expected
		}
	}
	load(t, "sessions.json", &file)
	for _, one := range file.Cases {
		url, got := saying(t, one.Answer)
		opening := Opening{Session: file.Session, Task: file.Task}
		opened, err := client(t, url, 5*time.Second).OpenSession(context.Background(), opening)
		switch want := one.Expect.Opened; {
		case want != nil:
			if err != nil || opened.Session != want.Session || opened.Fresh != want.Fresh || opened.Receipt.Index != want.Index {
				t.Errorf("%s: %v %v", one.Name, opened, err)
			}
		case one.Expect.Unavailable:
			if !errors.Is(err, ErrUnavailable) {
				t.Errorf("%s: %v", one.Name, err)
			}
		default:
			if wrong := differs(one.Expect, nil, err); wrong != "" {
				t.Errorf("%s: %s", one.Name, wrong)
			}
		}
		compareRequest(t, one.Name, *got, file.Request.Method, file.Request.Target, file.Request.Body)
	}
}

func TestProofs(t *testing.T) {
	var file struct {
		Holder struct {
			Secret, Public, Kid string
			Cnf                 json.RawMessage
		}
		Session struct {
			Audience, Nonce, Session, Typ, Proof string
			Mission                              string `json:"mission_id"`
			Now                                  int64
		}
		Typ   string
		First int64 `json:"first_number"`
		Calls []struct {
			Tool, Arguments, Proof string
			Server                 *string
			Number                 int64
		}
	}
	load(t, "proofs.json", &file)
	holder, err := NewHolder(unhex(file.Holder.Secret))
	if err != nil {
		t.Fatal(err)
	}
	holder.now = func() time.Time { return time.Unix(file.Session.Now, 0) }
	if want, _ := CanonicalJSON(file.Holder.Cnf); !bytes.Equal(want, holder.Confirmation()) {
		t.Errorf("%s", holder.Confirmation())
	}
	s := file.Session
	if got := holder.proveSession(s.Audience, s.Nonce, s.Mission, s.Session); got != s.Proof || s.Typ != sessionProofType {
		t.Error(got)
	}
	proving := &prover{holder: holder, audience: s.Audience, session: s.Session}
	proving.next.Store(file.First)
	for _, one := range file.Calls {
		digest, err := CallDigest(textOf(one.Server), one.Tool, json.RawMessage(one.Arguments))
		if got := proving.prove(digest); err != nil || got != one.Proof || file.Typ != callProofType {
			t.Errorf("%d: %s %v", one.Number, got, err)
		}
	}
}

func TestWebhooks(t *testing.T) {
	var file struct {
		Now   int64
		Cases []struct {
			Name, Secret, Body string
			Headers            map[string]string
			Expect             struct {
				Body    *string
				Refused *struct{ Code string }
			}
		}
	}
	load(t, "webhooks.json", &file)
	for _, one := range file.Cases {
		header := http.Header{}
		for name, value := range one.Headers {
			header[name] = []string{value}
		}
		got, err := VerifyWebhook(one.Secret, header, []byte(one.Body), time.Unix(file.Now, 0))
		var refusal *InvalidCall
		switch {
		case one.Expect.Body != nil:
			if err != nil || string(got) != *one.Expect.Body {
				t.Errorf("%s: %s %v", one.Name, got, err)
			}
		case !errors.As(err, &refusal):
			t.Errorf("%s was taken", one.Name)
		case refusal.Code != one.Expect.Refused.Code && refusal.Code != "malformed": // strict JSON has one word here
			t.Errorf("%s: %v", one.Name, refusal.Code)
		}
	}
}

func TestReceipts(t *testing.T) {
	var file struct {
		Key   struct{ Kid, Public string }
		Cases []struct {
			Name, Receipt string
			LeafHash      string `json:"leaf_hash"`
			Broken        *string
		}
	}
	load(t, "receipts.json", &file)
	for _, one := range file.Cases {
		leaf, err := CheckReceipt([]byte(one.Receipt), unhex(file.Key.Public))
		if hex.EncodeToString(leaf) != one.LeafHash {
			t.Errorf("%s: %x", one.Name, leaf)
		}
		broken, _ := AsLogInvalid(err)
		if (one.Broken == nil) != (err == nil) || (broken != nil && broken.Kind != *one.Broken) {
			t.Errorf("%s: %v", one.Name, err)
		}
	}
}

func TestInclusionAndConsistency(t *testing.T) {
	var file struct {
		Inclusion []struct {
			Name, Root  string
			Leaf        string `json:"leaf_hash"`
			Index, Size int64
			Path        []string
			Holds       bool
		}
		Consistency []struct {
			Name          string
			First, Second int64
			FirstRoot     string `json:"first_root"`
			SecondRoot    string `json:"second_root"`
			Path          []string
			Holds         bool
		}
	}
	load(t, "inclusion.json", &file)
	for _, one := range file.Inclusion {
		err := VerifyInclusion(unhex(one.Leaf), one.Index, one.Size, unhexAll(one.Path), unhex(one.Root))
		if (err == nil) != one.Holds {
			t.Errorf("%s: %v", one.Name, err)
		}
	}
	for _, one := range file.Consistency {
		err := VerifyConsistency(one.First, one.Second, unhex(one.FirstRoot), unhex(one.SecondRoot), unhexAll(one.Path))
		if (err == nil) != one.Holds {
			t.Errorf("%s: %v", one.Name, err)
		}
	}
}

func TestCheckpoints(t *testing.T) {
	var file struct {
		Key   struct{ Public string }
		Cases []struct {
			Name, Note string
			Expect     *struct {
				Origin, Root string
				Size         int64
			}
		}
	}
	load(t, "checkpoints.json", &file)
	for _, one := range file.Cases {
		got, err := OpenCheckpoint([]byte(one.Note), ed25519.PublicKey(unhex(file.Key.Public)))
		switch {
		case one.Expect == nil:
			if err == nil {
				t.Errorf("%s was taken", one.Name)
			}
		case err != nil || got.Origin != one.Expect.Origin || got.Size != one.Expect.Size ||
			hex.EncodeToString(got.Root) != one.Expect.Root:
			t.Errorf("%s: %v %v", one.Name, got, err)
		}
	}
}

func TestStreams(t *testing.T) {
	var file struct {
		DecisionID string `json:"decision_id"`
		Framing    string
		Chunks     []string
		Request    struct{ Method, Target string }
		Cases      []struct {
			Name       string
			Verdicts   []string
			Last       *string
			Provenance string
			Refusal    *said
			Lines      []string
			Passed     string
			Expect     expected
		}
	}
	load(t, "streams.json", &file)
	for _, one := range file.Cases {
		var lines []string
		served := httptest.NewServer(http.HandlerFunc(func(writer http.ResponseWriter, request *http.Request) {
			if request.Method != file.Request.Method || request.RequestURI != file.Request.Target {
				t.Errorf("%s: %s %s", one.Name, request.Method, request.RequestURI)
			}
			control := http.NewResponseController(writer)
			_ = control.EnableFullDuplex()
			if one.Refusal != nil {
				writer.WriteHeader(one.Refusal.Status)
				_, _ = io.WriteString(writer, one.Refusal.Body)
				return
			}
			reader, verdicts := newReader(request.Body), one.Verdicts
			for {
				line, err := reader.ReadString('\n')
				if err != nil {
					break
				}
				lines = append(lines, strings.TrimSuffix(line, "\n"))
				if !strings.Contains(line, "base64") {
					continue
				}
				if len(verdicts) == 0 {
					return
				}
				_, _ = io.WriteString(writer, verdicts[0]+"\n")
				_ = control.Flush()
				verdicts = verdicts[1:]
			}
			if one.Last != nil {
				_, _ = io.WriteString(writer, *one.Last+"\n")
			}
		}))
		asking := client(t, served.URL, 2*time.Second)
		var chunks []io.Reader
		for _, chunk := range file.Chunks {
			chunks = append(chunks, strings.NewReader(chunk))
		}
		options := StreamOptions{Framing: file.Framing}
		if one.Provenance != "" {
			options.Provenance = func() string { return one.Provenance }
		}
		reader := asking.EvaluateStreaming(context.Background(), file.DecisionID, io.MultiReader(chunks...), options)
		passed, err := io.ReadAll(reader)
		_ = reader.Close()
		served.Close()
		var cut *StreamCut
		switch {
		case one.Expect.Allowed:
			if err != nil || string(passed) != one.Passed || strings.Join(lines, "\n") != strings.Join(one.Lines, "\n") {
				t.Errorf("%s: %q %v %v", one.Name, passed, err, lines)
			}
		case one.Expect.Invalid != nil:
			if wrong := differs(one.Expect, nil, err); wrong != "" {
				t.Errorf("%s: %s", one.Name, wrong)
			}
		case !errors.As(err, &cut) || cut.Decision.Reason != one.Expect.Cut.Reason || !strings.HasPrefix(one.Passed, string(passed)):
			t.Errorf("%s: %q %v", one.Name, passed, err)
		}
	}
}

func TestEveryFileOfVectorsIsRun(t *testing.T) {
	found, err := filepath.Glob(filepath.Join(vectors, "*.json"))
	if err != nil || len(found) == 0 {
		t.Fatal("there are no vectors")
	}
	for _, path := range found {
		if !ran[filepath.Base(path)] {
			t.Errorf("%s is not run", filepath.Base(path))
		}
	}
}
