package contract

import (
	"bufio"
	"bytes"
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"slices"
	"testing"
	"time"

	aegis "github.com/aegis-guard/aegis/sdk/go"
)

// BenchmarkBeyondTheRawRoundTrip asks for the same decision over the same socket, by hand and by the client, in turns.
func BenchmarkBeyondTheRawRoundTrip(b *testing.B) {
	client, err := aegis.New(aegis.Options{URL: "unix://" + served.socket, APIKey: served.agent})
	if err != nil {
		b.Fatal(err)
	}
	defer client.Close()
	raw, err := net.Dial("unix", served.socket)
	if err != nil {
		b.Fatal(err)
	}
	defer raw.Close()
	reader := bufio.NewReader(raw)
	begun := time.Now().UnixNano()
	byHand := func(number int) {
		body := fmt.Sprintf(`{"tool":"read_file","arguments":{"path":"/srv/%d.txt"},"call_id":"raw-%d-%d"}`, number, begun, number)
		request, _ := http.NewRequest(http.MethodPost, "http://localhost/v1/decisions", bytes.NewReader([]byte(body)))
		request.Header.Set("Authorization", "Bearer "+served.agent)
		request.Header.Set("Content-Type", "application/json")
		if err := request.Write(raw); err != nil {
			b.Fatal(err)
		}
		got, err := http.ReadResponse(reader, request)
		if err != nil {
			b.Fatal(err)
		}
		_, _ = io.Copy(io.Discard, got.Body)
	}
	byClient := func(number int) {
		call := aegis.ToolCall{Tool: "read_file", Arguments: map[string]any{"path": fmt.Sprintf("/srv/%d.txt", number)}}
		decision, err := client.Decide(context.Background(), call)
		if err != nil || !decision.Allowed() {
			b.Fatal("the call was not allowed", err)
		}
	}
	byHand(-1)
	byClient(-1)
	var beyond []time.Duration
	for number := 0; b.Loop(); number++ {
		first := time.Now()
		byHand(number)
		second := time.Now()
		byClient(number)
		beyond = append(beyond, time.Since(second)-second.Sub(first))
	}
	slices.Sort(beyond)
	b.ReportMetric(float64(beyond[len(beyond)/2].Microseconds()), "us-beyond")
}
