"""Exit code 0 while the server takes requests. Needs nothing but sockets: it starts every ten seconds, beside a server
that should not notice."""

import socket
import sys

with socket.create_connection(("127.0.0.1", 9090), timeout=2) as observer:
    observer.sendall(b"GET /readyz HTTP/1.1\r\n\r\n")
    sys.exit(not observer.recv(64).startswith(b"HTTP/1.1 200 "))
