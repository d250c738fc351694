"""An HTTP server in this process that speaks the schemas of vLLM and text-embeddings-inference over a real model."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import numpy as np
from numpy.typing import NDArray

Body = Mapping[str, Any]
Logits = NDArray[np.float32]
MOST_INPUTS = 32  # text-embeddings-inference's default --max-client-batch-size


@dataclass
class ModelServer:
    """What the server runs and has seen.

    `by_ids` and `by_texts` give logits of (batch, 5) in the order of `labels`; `views` writes a completion a prompt.
    `softmax` makes /classify answer probabilities whatever it is asked, as some versions do. `statuses` come first.
    """

    labels: Sequence[str] = ()
    by_ids: Callable[[list[list[int]]], Logits] | None = None
    by_texts: Callable[[list[list[str]]], Logits] | None = None
    views: Callable[[str], tuple[str, str]] | None = None
    model: str = "relation"
    softmax: bool = False
    statuses: list[int] = field(default_factory=list)
    requests: list[tuple[str, Body]] = field(default_factory=list)
    lock: threading.Lock = field(default_factory=threading.Lock)
    url: str = ""

    def answer(self, path: str, body: Body) -> tuple[int, Any]:
        """Status and JSON of one request."""
        if path == "/classify" and self.by_ids is not None:
            return self._classify(body)
        if path == "/predict" and self.by_texts is not None:
            return self._predict(body)
        if path == "/v1/completions" and self.views is not None:
            return self._complete(body)
        return 404, {"error": {"message": "Not Found", "type": "NotFoundError", "code": 404}}

    def _classify(self, body: Body) -> tuple[int, Any]:
        assert self.by_ids is not None
        if body.get("model") != self.model:
            message = f"The model `{body.get('model')}` does not exist."
            return 404, {"error": {"message": message, "type": "NotFoundError", "param": "model", "code": 404}}
        found = self.by_ids([list(ids) for ids in body["input"]])
        shown = softmax(found) if self.softmax or body.get("use_activation") is not False else found
        data = [
            {"index": index, "label": self.labels[int(row.argmax())], "probs": row.tolist(), "num_classes": len(row)}
            for index, row in enumerate(shown)
        ]
        usage = {"prompt_tokens": sum(map(len, body["input"])), "total_tokens": 0, "completion_tokens": 0}
        return 200, {"id": "classify-1", "object": "list", "created": 0, "model": self.model, "data": data[::-1],
                     "usage": usage}  # fmt: skip

    def _predict(self, body: Body) -> tuple[int, Any]:
        assert self.by_texts is not None
        if len(body["inputs"]) > MOST_INPUTS:
            return 413, {"error": f"batch size {len(body['inputs'])} > {MOST_INPUTS}", "error_type": "Validation"}
        found = self.by_texts([list(pair) for pair in body["inputs"]])
        shown = found if body.get("raw_scores") else softmax(found)
        return 200, [
            [{"score": float(row[at]), "label": self.labels[at]} for at in np.argsort(-row)]  # best first, as it does
            for row in shown
        ]

    def _complete(self, body: Body) -> tuple[int, Any]:
        assert self.views is not None
        if body["model"] != self.model:
            return 404, {"error": {"message": "no such model", "type": "NotFoundError", "code": 404}}
        written = [self.views(prompt) for prompt in body["prompt"]]
        choices = [{"index": index, "text": text, "logprobs": None, "finish_reason": reason}
                   for index, (text, reason) in enumerate(written)]  # fmt: skip
        return 200, {"id": "cmpl-1", "object": "text_completion", "created": 0, "model": self.model, "choices": choices}


def softmax(logits: Logits) -> Logits:
    exponent = np.exp(logits - logits.max(axis=1, keepdims=True))
    shares: Logits = exponent / exponent.sum(axis=1, keepdims=True)
    return shares


@contextmanager
def serving_models(server: ModelServer) -> Iterator[ModelServer]:
    """`server` on a free port of this machine, until the block ends."""

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_POST(self) -> None:
            body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
            with server.lock:  # torch models are asked one at a time
                server.requests.append((self.path, body))
                status, value = (server.statuses.pop(0), {"error": "scripted"}) if server.statuses else server.answer(
                    self.path, body
                )  # fmt: skip
            content = json.dumps(value).encode()
            self.send_response(status)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(content)))
            self.end_headers()
            self.wfile.write(content)

        def log_message(self, *_: object) -> None:
            """Nothing on the terminal."""

    http = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    http.daemon_threads = True
    threading.Thread(target=http.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True).start()
    server.url = f"http://127.0.0.1:{http.server_address[1]}"
    try:
        yield server
    finally:
        http.shutdown()
        http.server_close()
