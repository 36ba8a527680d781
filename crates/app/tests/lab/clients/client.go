// Asks for what follows the address on the command line, keeping its connection; says what came.
package main

import (
	"io"
	"net/http"
	"os"
	"strings"
)

func show(reply *http.Response, err error) {
	if err != nil {
		panic(err)
	}
	defer reply.Body.Close()
	if _, err := io.Copy(os.Stdout, reply.Body); err != nil {
		panic(err)
	}
}

func main() {
	base := "http://" + os.Args[1] + "/"
	for _, name := range os.Args[2:] {
		show(http.Get(base + name))
	}
	show(http.Post(base+"cgi/size", "text/plain", strings.NewReader(strings.Repeat("y", 300_000))))
}
