package contract

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	aegis "github.com/aegis-guard/aegis/sdk/go"
)

const configuration = `version: 1
profile: standard
limits: {rate: unlimited}
tools:
  read_file: {risk: low, effects: [read]}
  send_email: {risk: high, irreversible: true, effects: [external_send]}
`

// gateway is a real `aegis serve` with the keys of an agent and of an approver.
type gateway struct{ url, socket, agent, approver string }

var served gateway

func TestMain(m *testing.M) {
	home, err := os.MkdirTemp("", "aegis-go")
	if err != nil {
		panic(err)
	}
	stop, err := served.start(home, "")
	code := 1
	if err != nil {
		fmt.Fprintln(os.Stderr, "contract: the gateway does not start:", err)
	} else {
		code = m.Run()
		stop()
	}
	_ = os.RemoveAll(home)
	os.Exit(code)
}

func command() string {
	if named := os.Getenv("AEGIS_BIN"); named != "" {
		return named
	}
	found, _ := filepath.Abs("../../../.venv/bin/aegis")
	return found
}

func (g *gateway) start(home, more string) (func(), error) {
	file := filepath.Join(home, "aegis.yaml")
	if err := os.WriteFile(file, []byte(configuration+more), 0o600); err != nil {
		return nil, err
	}
	for role, into := range map[string]*string{"agent": &g.agent, "approver": &g.approver} {
		named := []string{"--agent", "bot"}
		if role == "approver" {
			named = []string{"--name", "ann"}
		}
		made, err := exec.Command(command(), append([]string{"keys", "create", "--role", role, "--home", home}, named...)...).Output()
		if err != nil {
			return nil, fmt.Errorf("keys create: %w", err)
		}
		*into = strings.TrimSpace(string(made))
	}
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	port := listener.Addr().(*net.TCPAddr).Port
	_ = listener.Close()
	running := exec.Command(command(), "serve", "--config", file, "--home", home, "--port", fmt.Sprint(port))
	var said bytes.Buffer
	running.Stdout, running.Stderr = &said, &said
	if err := running.Start(); err != nil {
		return nil, err
	}
	stop := func() {
		_ = running.Process.Signal(os.Interrupt)
		_ = running.Wait()
	}
	g.url = fmt.Sprintf("http://127.0.0.1:%d", port)
	for range 600 {
		if answer, err := http.Get(g.url + "/readyz"); err == nil {
			_ = answer.Body.Close()
			if answer.StatusCode == http.StatusOK {
				sockets, _ := filepath.Glob(filepath.Join(home, "*.sock"))
				for _, one := range sockets {
					if !strings.Contains(one, "hook") {
						g.socket = one
					}
				}
				return stop, nil
			}
		}
		time.Sleep(50 * time.Millisecond)
	}
	stop()
	return nil, fmt.Errorf("it is not ready: %s", said.String())
}

// approve answers the next approval that is pending.
func (g *gateway) approve(t *testing.T, decision string) {
	t.Helper()
	for range 400 {
		listed := g.ask(t, http.MethodGet, "/v1/approvals", nil)
		items, _ := listed["items"].([]any)
		for _, item := range items {
			one := item.(map[string]any)
			if one["state"] != "pending" {
				continue
			}
			g.ask(t, http.MethodPost, "/v1/approvals/"+one["id"].(string), map[string]any{
				"decision": decision, "reason": "contract", "call_digest": one["call_digest"],
				"policy_digest": one["policy_digest"],
			})
			return
		}
		time.Sleep(25 * time.Millisecond)
	}
	t.Error("no call was held")
}

func (g *gateway) ask(t *testing.T, method, target string, body any) map[string]any {
	t.Helper()
	written, _ := json.Marshal(body)
	if body == nil {
		written = nil
	}
	request, _ := http.NewRequest(method, g.url+target, bytes.NewReader(written))
	request.Header.Set("Authorization", "Bearer "+g.approver)
	request.Header.Set("Content-Type", "application/json")
	answer, err := http.DefaultClient.Do(request)
	if err != nil {
		t.Error(err)
		return nil
	}
	defer func() { _ = answer.Body.Close() }()
	read, _ := io.ReadAll(answer.Body)
	if answer.StatusCode >= 300 {
		t.Errorf("%s %s: %d %s", method, target, answer.StatusCode, read)
	}
	var found map[string]any
	_ = json.Unmarshal(read, &found)
	return found
}

func guardAt(t *testing.T, url string, timeout time.Duration) *aegis.Guard {
	t.Helper()
	client, err := aegis.New(aegis.Options{URL: url, APIKey: served.agent, Agent: "bot", Timeout: timeout})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(client.Close)
	return &aegis.Guard{Decider: client}
}

// broken is a decider that fails in the way of a programming error.
type broken struct{ aegis.Decider }

func (broken) Decide(context.Context, aegis.ToolCall) (*aegis.Decision, error) { panic("a defect") }
