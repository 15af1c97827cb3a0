"""``python -m benchmarks.nomad.copied_nodes FILE PORT``: a Nomad that only answers for its nodes.

Answers are in chunks, as Nomad's are; each list of nodes comes with a higher index than the last.
"""

import sys
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from itertools import count
from pathlib import Path
from urllib.parse import parse_qs, urlsplit


def main() -> int:
    """Serve until killed."""
    nodes = Path(sys.argv[1]).read_bytes()

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"
        _indexes: Iterator[int] = count(1)

        def do_GET(self) -> None:
            url = urlsplit(self.path)
            whole = url.path == "/v1/nodes" and "resources" in parse_qs(url.query)
            content = nodes if whole else b"[]"
            self.send_response(200)
            self.send_header("Content-Type", "application/json")
            self.send_header("Transfer-Encoding", "chunked")
            self.send_header("X-Nomad-Index", str(next(self._indexes)))
            self.end_headers()
            self.wfile.write(b"%x\r\n%s\r\n0\r\n\r\n" % (len(content), content))

        def log_message(self, format: str, *args: object) -> None:
            """Not to be measured either."""

    ThreadingHTTPServer(("127.0.0.1", int(sys.argv[2])), Handler).serve_forever()
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
