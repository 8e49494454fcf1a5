package aegis

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base64"
	"net/http"
	"strconv"
	"strings"
	"time"
)

const webhookTolerance = 300 // seconds that a message may be old

// VerifyWebhook gives the canonical JSON of a webhook's body where its signature holds and its time is near now
// (Standard Webhooks 1.0); keep the header `webhook-id` for five minutes to know a repetition.
//
// The error is an *InvalidCall with status 401.
func VerifyWebhook(secret string, header http.Header, body []byte, now time.Time) ([]byte, error) {
	id, stamp := headerOf(header, "webhook-id"), headerOf(header, "webhook-timestamp")
	if id == "" || stamp == "" || len(stamp) > 12 || strings.Trim(stamp, "0123456789") != "" {
		return nil, refuseWebhook("unsigned", "the webhook is not signed")
	}
	seconds, err := strconv.ParseInt(stamp, 10, 64)
	if age := now.Unix() - seconds; err != nil || age > webhookTolerance || age < -webhookTolerance {
		return nil, refuseWebhook("stale", "the webhook is too old, or from the future")
	}
	key := []byte(secret)
	if encoded, ok := strings.CutPrefix(secret, "whsec_"); ok {
		if key, err = base64.StdEncoding.DecodeString(encoded); err != nil {
			return nil, &InvalidCall{
				Code: "secret", Status: 422, Message: "the secret of the webhook is not base64 behind `whsec_`",
			}
		}
	}
	sum := hmac.New(sha256.New, key)
	sum.Write([]byte(id + "." + stamp + "."))
	sum.Write(body)
	wanted := []byte("v1," + base64.StdEncoding.EncodeToString(sum.Sum(nil)))
	for _, given := range strings.Fields(headerOf(header, "webhook-signature")) {
		if hmac.Equal([]byte(given), wanted) {
			return CanonicalJSON(body)
		}
	}
	return nil, refuseWebhook("bad_signature", "the signature of the webhook does not hold")
}

func headerOf(header http.Header, name string) string {
	for key, values := range header {
		if strings.EqualFold(key, name) && len(values) == 1 {
			return values[0]
		}
	}
	return ""
}

func refuseWebhook(code, message string) error {
	return &InvalidCall{Code: code, Message: message, Status: 401}
}
