"""The peer: ``python -m benchmarks.nomad.bare_client``, jobs as HCL in, registered in Nomad.

The least code that does it: standard library, a connection a thread, parse and register; between
the two, where it is asked to, a variable with the job's token.
"""

import http.client
import json
import queue
import sys
import threading
import time
from urllib.parse import urlsplit


def main() -> int:
    """Read what to do as JSON from stdin; write when it began, seconds since the epoch."""
    request = json.load(sys.stdin)
    texts: queue.SimpleQueue[str] = queue.SimpleQueue()
    for text in request["texts"]:
        texts.put(text)
    threads = [
        threading.Thread(
            target=_client,
            args=(
                request["address"],
                request["token"],
                request["namespace"],
                request["secrets"],
                texts,
            ),
        )
        for _ in range(request["connections"])
    ]
    began = time.time()
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    print(json.dumps(began))
    return 0


def _client(
    address: str, token: str, namespace: str, secrets: bool, texts: "queue.SimpleQueue[str]"
) -> None:
    connection = http.client.HTTPConnection(urlsplit(address).netloc)

    def call(path: str, body: object, method: str = "POST") -> dict[str, object]:
        headers = {"X-Nomad-Token": token, "Content-Type": "application/json"}
        connection.request(method, f"{path}?namespace={namespace}", json.dumps(body), headers)
        answer = connection.getresponse()
        content = answer.read()
        if answer.status != 200:
            raise RuntimeError(f"{path}: {answer.status} {content[:500]!r}")
        return dict(json.loads(content))

    while True:
        try:
            text = texts.get_nowait()
        except queue.Empty:
            return
        job = call("/v1/jobs/parse", {"JobHCL": text})
        if secrets:
            path = f"nomad/jobs/{job['ID']}"
            call(f"/v1/var/{path}", {"Path": path, "Items": {"TOKEN": "x" * 43}}, "PUT")
        call("/v1/jobs", {"Job": job, "EnforceIndex": True, "JobModifyIndex": 0})


if __name__ == "__main__":
    raise SystemExit(main())
