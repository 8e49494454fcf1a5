package aegis

import (
	"bufio"
	"context"
	"encoding/base64"
	"errors"
	"io"
	"net/http"
	"net/url"
	"sync"
	"time"
)

const (
	maxPiece     = 524_288   // bytes that one line carries: the gateway takes lines of a mebibyte
	maxVerdict   = 1_048_576 // bytes of one verdict
	streamBuffer = 32_768    // bytes read from the source at once
)

// StreamOptions say more about a streamed result.
type StreamOptions struct {
	// Framing is what the stream holds: "plain" (by default), "sse" or "lines".
	Framing string
	// Provenance gives the tool's signature over the whole, and is asked once the source has ended.
	Provenance func() string
}

// EvaluateStreaming gives what of a streamed result may be used, while it arrives.
//
// The reader ends with io.EOF where the whole of it may be used, and with a *StreamCut where it may not; what came
// before the cut was released by the gateway. Close it to let go of the gateway and of the source.
func (c *Client) EvaluateStreaming(
	ctx context.Context, decisionID string, source io.Reader, options StreamOptions,
) io.ReadCloser {
	ctx, cancel := context.WithCancel(ctx)
	out, released := io.Pipe()
	talk := &streamTalk{client: c, ctx: ctx, cancel: cancel, released: released}
	talk.heard = sync.NewCond(&talk.lock)
	talk.watchdog = time.AfterFunc(c.timeout, cancel)
	talk.watchdog.Stop() // a silent source is waited for, a gateway that owes an answer is not
	framing := firstOf(options.Framing, "plain")
	target := "/v1/results/" + url.PathEscape(decisionID) + "/stream?framing=" + url.QueryEscape(framing)
	lines, sending := io.Pipe()
	// net/http waits for the body of a request that failed: one that nobody writes any more has to end.
	context.AfterFunc(ctx, func() {
		_ = lines.CloseWithError(errBadAnswer)
		talk.lock.Lock()
		talk.heard.Broadcast()
		talk.lock.Unlock()
	})
	go talk.send(source, sending, options.Provenance)
	go talk.hear(target, lines)
	return &cutReader{PipeReader: out, cancel: cancel}
}

type cutReader struct {
	*io.PipeReader
	cancel context.CancelFunc
}

func (r *cutReader) Close() error {
	r.cancel()
	return r.PipeReader.Close()
}

// streamTalk is one streamed result: lines out, verdicts in, released bytes on.
//
// The gateway says how many bytes, from the first on, may be passed on; nothing else of the stream leaves here, and
// what ends in any other way than with a recorded permission is cut.
type streamTalk struct {
	client   *Client
	ctx      context.Context
	cancel   context.CancelFunc
	released *io.PipeWriter
	watchdog *time.Timer // runs while the gateway owes an answer

	lock                  sync.Mutex
	heard                 *sync.Cond
	kept                  []byte
	sent, answered, given int64
	decision              *ResultDecision
	over                  bool
}

func (t *streamTalk) send(source io.Reader, sending *io.PipeWriter, provenance func() string) {
	buffer := make([]byte, streamBuffer)
	for {
		n, err := source.Read(buffer)
		if n > 0 && !t.piece(sending, buffer[:n]) {
			_ = sending.CloseWithError(errBadAnswer)
			return
		}
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			_ = t.released.CloseWithError(err) // what the source says is given as it is
			t.cancel()
			_ = sending.CloseWithError(err)
			return
		}
	}
	t.watchdog.Reset(t.client.timeout)
	if provenance != nil {
		if signed := provenance(); signed != "" {
			_, _ = sending.Write(append(appendText([]byte(`{"provenance":`), signed), '}', '\n'))
		}
	}
	_ = sending.Close()
}

// piece sends some bytes and waits until the gateway has answered them.
func (t *streamTalk) piece(sending *io.PipeWriter, data []byte) bool {
	for len(data) > 0 {
		part := data[:min(len(data), maxPiece)]
		data = data[len(part):]
		t.lock.Lock()
		t.kept = append(t.kept, part...)
		t.sent += int64(len(part))
		t.lock.Unlock()
		t.watchdog.Reset(t.client.timeout)
		line := appendText([]byte(`{"base64":`), base64.StdEncoding.EncodeToString(part))
		if _, err := sending.Write(append(line, '}', '\n')); err != nil {
			return false
		}
		t.lock.Lock()
		for t.answered < t.sent && !t.over && t.ctx.Err() == nil {
			t.heard.Wait()
		}
		over := t.over || t.ctx.Err() != nil
		t.lock.Unlock()
		if over {
			return false
		}
		t.watchdog.Stop()
	}
	return true
}

func (t *streamTalk) hear(target string, lines *io.PipeReader) {
	err := t.verdicts(target, lines)
	t.lock.Lock()
	t.over = true
	decision := t.decision
	t.heard.Broadcast()
	t.lock.Unlock()
	t.watchdog.Stop()
	_ = lines.CloseWithError(errBadAnswer) // whoever still writes is let go
	var misuse *InvalidCall
	switch {
	case errors.As(err, &misuse):
		_ = t.released.CloseWithError(misuse)
	case err != nil || decision == nil:
		_ = t.released.CloseWithError(&StreamCut{withheld(ReasonUnavailable)})
	case !decision.Allowed():
		_ = t.released.CloseWithError(&StreamCut{decision})
	default:
		_ = t.released.Close()
	}
	t.cancel()
}

func (t *streamTalk) verdicts(target string, lines *io.PipeReader) error {
	request, err := http.NewRequestWithContext(t.ctx, http.MethodPost, t.client.endpoint.origin+target, lines)
	if err != nil {
		return err
	}
	request.Header = t.client.header.Clone()
	request.Header.Set("Content-Type", "application/x-ndjson")
	response, err := t.client.http.Do(request)
	if err != nil {
		return err
	}
	defer func() { _ = response.Body.Close() }()
	if response.StatusCode != http.StatusOK {
		body, err := io.ReadAll(io.LimitReader(response.Body, maxVerdict))
		if err != nil {
			return err
		}
		got := &answer{status: response.StatusCode, body: body}
		if got.misuse() {
			return got.refusal()
		}
		return errBadAnswer
	}
	reader := bufio.NewReader(response.Body)
	for t.decision == nil {
		line, err := readLine(reader)
		if err != nil {
			return err
		}
		passed, err := t.verdict(line)
		if err != nil {
			return err
		}
		if _, err := t.released.Write(passed); err != nil {
			return err
		}
	}
	return nil
}

func readLine(reader *bufio.Reader) ([]byte, error) {
	var line []byte
	for {
		part, err := reader.ReadSlice('\n')
		line = append(line, part...)
		if err == nil {
			return line, nil
		}
		if !errors.Is(err, bufio.ErrBufferFull) || len(line) > maxVerdict {
			return nil, errBadAnswer
		}
	}
}

func (t *streamTalk) verdict(line []byte) ([]byte, error) {
	object, err := readObject(line)
	if err != nil {
		return nil, errBadAnswer
	}
	taken, counted := object.whole("bytes")
	released, measured := object.whole("released")
	value, _ := object.find("final")
	final, said := value.(bool)
	if !counted || !measured || !said {
		return nil, errBadAnswer
	}
	var decision *ResultDecision
	if final {
		if decision, err = readResult(line); err != nil {
			return nil, err
		}
	}
	t.lock.Lock()
	defer t.lock.Unlock()
	if t.given > released || released > taken || taken > t.sent {
		return nil, errBadAnswer
	}
	passed := append([]byte(nil), t.kept[:released-t.given]...)
	t.kept = append(t.kept[:0], t.kept[released-t.given:]...)
	t.given, t.answered, t.decision = released, taken, decision
	t.heard.Broadcast()
	return passed, nil
}
