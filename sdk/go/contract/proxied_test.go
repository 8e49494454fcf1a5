package contract

import (
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"strings"
	"testing"
)

// The example of the documentation: openai-go with the gateway's base URL and no package of ours.
func TestAnAgentIsGovernedByItsBaseURLAlone(t *testing.T) {
	call := func(id, path string) map[string]any {
		arguments, _ := json.Marshal(map[string]string{"path": path})
		return map[string]any{
			"id": id, "type": "function",
			"function": map[string]any{"name": "read_file", "arguments": string(arguments)},
		}
	}
	turns := []map[string]any{
		{"role": "assistant", "content": "let me", "tool_calls": []any{
			call("call_good0123456789", "/srv/report.txt"), call("call_evil0123456789", "/etc/shadow"),
		}},
		{"role": "assistant", "content": "the report is fine"},
	}
	var asked []string
	provider := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		turn := turns[min(len(asked), len(turns)-1)]
		asked = append(asked, string(body))
		if r.Header.Get("Authorization") != "Bearer sk-provider" {
			t.Error("the provider was not asked with its own key")
		}
		reason := "stop"
		if turn["tool_calls"] != nil {
			reason = "tool_calls"
		}
		w.Header().Set("Content-Type", "application/json")
		_ = json.NewEncoder(w).Encode(map[string]any{
			"id": "chatcmpl-1", "object": "chat.completion", "created": 1, "model": "scripted",
			"choices": []any{map[string]any{"index": 0, "message": turn, "finish_reason": reason, "logprobs": nil}},
			"usage":   map[string]any{"prompt_tokens": 1, "completion_tokens": 1, "total_tokens": 2},
		})
	}))
	defer provider.Close()
	home := t.TempDir()
	if err := os.Chmod(home, 0o700); err != nil {
		t.Fatal(err)
	}
	t.Setenv("PROXIED_KEY", "sk-provider")
	var proxy gateway
	stop, err := proxy.start(home, `proxies: {providers: {one: {dialect: openai, url: "`+provider.URL+
		`/v1", key: "${env:PROXIED_KEY}", private: true}}}`)
	if err != nil {
		t.Fatal(err)
	}
	defer stop()
	run := exec.Command("go", "run", "./proxied")
	run.Dir = "../../../examples/go"
	run.Env = append(os.Environ(), "OPENAI_BASE_URL="+proxy.url+"/v1", "OPENAI_API_KEY="+proxy.agent)
	said, err := run.CombinedOutput()
	if err != nil {
		t.Fatalf("%v: %s", err, said)
	}
	if text := string(said); text != "read_file {\"path\":\"/srv/report.txt\"}\nthe report is fine\n" {
		t.Fatalf("the agent said %q", text)
	}
	if last := asked[len(asked)-1]; !strings.Contains(last, "was not run") {
		t.Fatalf("the model was not told of the refusal: %s", last)
	}
}
