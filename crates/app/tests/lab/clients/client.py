"""Asks for what follows the address on the command line, on one connection; says what came. Then all of it at once, as pipelining does."""

import http.client
import socket
import sys

host, names = sys.argv[1].strip("[]"), sys.argv[2:]
connection = http.client.HTTPConnection(host, 80, timeout=20)
for name in names:
    connection.request("GET", "/" + name)
    sys.stdout.buffer.write(connection.getresponse().read())
connection.request("POST", "/cgi/size", body=b"y" * 300_000)
sys.stdout.buffer.write(connection.getresponse().read())
connection.close()

stream = socket.create_connection((host, 80), timeout=20)
requests = ["GET /%s HTTP/1.1\r\nHost: x\r\n\r\n" % name for name in names]
stream.sendall("".join(requests).encode())
replies = stream.makefile("rb")
for name in names:
    assert replies.readline().startswith(b"HTTP/1.1 200 ")
    fields = http.client.parse_headers(replies)
    sys.stdout.buffer.write(replies.read(int(fields["Content-Length"])))
