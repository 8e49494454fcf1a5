package aegis

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/url"
	"os"
	"time"
)

// Options say where the gateway is and by what it is known to be the gateway.
type Options struct {
	// URL is http://HOST:PORT, https://HOST:PORT or unix:///path; by default AEGIS_URL, then http://127.0.0.1:8787.
	URL string
	// APIKey is the agent's key, sent as a bearer credential and to this gateway alone; by default AEGIS_API_KEY.
	APIKey string
	// Agent is the agent's name, for calls that name none; by default AEGIS_AGENT.
	Agent string
	// Timeout is what one exchange may take as a whole; by default 30 seconds.
	Timeout time.Duration
	// GatewayUID is the user that must hold the Unix socket; by default the user of this process. Root always may.
	GatewayUID *int
	// CA is a file of the certificates that may sign the gateway's; by default those of the system.
	CA string
	// Holder proves possession, where a mission asks for it.
	Holder *Holder
}

const (
	defaultURL     = "http://127.0.0.1:8787"
	defaultTimeout = 30 * time.Second
	maxHeadBytes   = 65_536     // a head that never ends would fill the memory
	maxBodyBytes   = 33_554_432 // a decision carries arguments of at most 4 MiB, escaped sixfold at worst
	maxIdle        = 64         // connections that are kept: bounds file descriptors
)

// errCounterfeit is a socket that is held by a user who is not the gateway's.
var errCounterfeit = errors.New("the gateway's socket is held by another user")

// endpoint is one gateway: the origin of its requests, and the transport that knows it.
type endpoint struct {
	origin        string
	authenticated bool
	transport     *http.Transport
}

func endpointOf(options Options) (*endpoint, error) {
	address := firstOf(options.URL, os.Getenv("AEGIS_URL"), defaultURL)
	parts, err := url.Parse(address)
	if err != nil {
		return nil, invalid("the gateway's address is not a URL")
	}
	// (1) Nothing of the environment stands between this process and its gateway, and nothing sends it elsewhere.
	transport := &http.Transport{
		Proxy: nil, DisableCompression: true, MaxResponseHeaderBytes: maxHeadBytes,
		MaxIdleConnsPerHost: maxIdle, IdleConnTimeout: time.Minute,
		TLSNextProto: map[string]func(string, *tls.Conn) http.RoundTripper{},
	}
	found := &endpoint{transport: transport}
	dialer := &net.Dialer{}
	// (2) On a Unix socket the kernel names who listens.
	if parts.Scheme == "unix" && parts.Host == "" && parts.Path != "" {
		uid := os.Geteuid()
		if options.GatewayUID != nil {
			uid = *options.GatewayUID
		}
		transport.DialContext = func(ctx context.Context, _, _ string) (net.Conn, error) {
			return dialUnix(ctx, dialer, parts.Path, uid)
		}
		found.origin, found.authenticated = "http://localhost", true
		return found, nil
	}
	if (parts.Scheme != "http" && parts.Scheme != "https") || parts.Hostname() == "" {
		return nil, invalid("the gateway's address must be `http://`, `https://` or `unix:///path`")
	}
	if parts.User != nil || (parts.Path != "" && parts.Path != "/") || parts.RawQuery != "" || parts.Fragment != "" {
		return nil, invalid("the gateway's address must be a scheme, a host and a port alone")
	}
	// (3) TLS names the peer; plain TCP names nobody.
	transport.DialContext = dialer.DialContext
	found.origin = parts.Scheme + "://" + parts.Host
	if parts.Scheme == "https" {
		found.authenticated = true
		transport.TLSClientConfig = &tls.Config{MinVersion: tls.VersionTLS12}
		if options.CA != "" {
			pem, err := os.ReadFile(options.CA)
			if err != nil {
				return nil, fmt.Errorf("aegis: the certificates of the gateway cannot be read: %w", err)
			}
			pool := x509.NewCertPool()
			if !pool.AppendCertsFromPEM(pem) {
				return nil, invalid("the file of certificates holds none")
			}
			transport.TLSClientConfig.RootCAs = pool
		}
	}
	return found, nil
}

func dialUnix(ctx context.Context, dialer *net.Dialer, path string, uid int) (net.Conn, error) {
	connection, err := dialer.DialContext(ctx, "unix", path)
	if err != nil {
		return nil, err
	}
	held, err := peerUID(connection.(*net.UnixConn))
	if err == nil && held != 0 && held != uid {
		err = errCounterfeit
	}
	if err != nil {
		return nil, errors.Join(err, connection.Close())
	}
	return connection, nil
}

func firstOf(texts ...string) string {
	for _, text := range texts {
		if text != "" {
			return text
		}
	}
	return ""
}
