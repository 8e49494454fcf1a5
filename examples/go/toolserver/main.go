// A tool server that runs nothing without a permit for exactly the arguments of the request.
package main

import (
	"io"
	"log"
	"net/http"

	aegis "github.com/aegis-guard/aegis/sdk/go"
)

func main() {
	client, err := aegis.New(aegis.Options{}) // AEGIS_URL, and AEGIS_API_KEY of the role `tool`
	if err != nil {
		log.Fatal(err)
	}
	send := http.HandlerFunc(func(writer http.ResponseWriter, request *http.Request) {
		arguments, _ := io.ReadAll(request.Body) // the very bytes that were permitted
		_, _ = writer.Write(append([]byte("sent "), arguments...))
	})
	tools := aegis.ToolServer{Tools: map[string]string{"/send_email": "send_email"}, OpenPaths: []string{"/healthz"}}
	log.Fatal(http.ListenAndServe("127.0.0.1:8900", aegis.RequirePermits(client, tools, send)))
}
