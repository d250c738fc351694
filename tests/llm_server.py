"""A real HTTP server in this process that speaks the OpenAI schema; each test says what it answers."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

Body = Mapping[str, Any]
Answer = Callable[[Body], str]
MODEL = "stub"
ANY_FORMAT = frozenset({"json_schema", "object_schema", "json_object"})


@dataclass
class Stub:
    """What the server does and has seen.

    `answer` makes the reply text of a request; `formats` are the response formats it takes (others get `refusal`);
    `statuses` are sent first, one a request; `delay` is waited before each answer; `cached` is told as cached tokens.
    """

    answer: Answer
    formats: frozenset[str] = ANY_FORMAT
    refusal: int = 400
    statuses: list[int] = field(default_factory=list)
    delay: float = 0.0
    cached: int | None = None
    usage: bool = True
    requests: list[Body] = field(default_factory=list)
    in_flight: int = 0
    most_in_flight: int = 0
    url: str = ""
    lock: threading.Lock = field(default_factory=threading.Lock)

    @property
    def endpoint(self) -> str:
        """MODEL@URL as the programs take it."""
        return f"{MODEL}@{self.url}"

    def prompts(self) -> list[str]:
        """The last message of each request."""
        return [str(body["messages"][-1]["content"]) for body in self.requests]


def format_of(body: Body) -> str | None:
    """The response format a request asks for, in our words."""
    form = body.get("response_format")
    if form is None:
        return None
    return "object_schema" if form["type"] == "json_object" and "schema" in form else str(form["type"])


@contextmanager
def serving(answer: Answer, **options: Any) -> Iterator[Stub]:
    """A server on a free port of this machine, until the block ends."""
    stub = Stub(answer, **options)

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_GET(self) -> None:
            self._send(200, {"object": "list", "data": [{"id": MODEL, "object": "model"}]})

        def do_POST(self) -> None:
            body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
            with stub.lock:
                stub.requests.append(body)
                stub.in_flight += 1
                stub.most_in_flight = max(stub.most_in_flight, stub.in_flight)
                status = stub.statuses.pop(0) if stub.statuses else 200
            try:
                time.sleep(stub.delay)
                asked = format_of(body)
                if status == 200 and asked is not None and asked not in stub.formats:
                    status = stub.refusal
                if status != 200:
                    self._send(status, {"error": {"message": f"scripted {status}", "type": "stub"}})
                else:
                    self._send(200, _completion(stub, body, stub.answer(body)))
            finally:
                with stub.lock:
                    stub.in_flight -= 1

        def _send(self, status: int, value: object) -> None:
            content = json.dumps(value).encode()
            self.send_response(status)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(content)))
            if status == 429:
                self.send_header("Retry-After", "0")
            self.end_headers()
            try:
                self.wfile.write(content)
            except (BrokenPipeError, ConnectionResetError):
                self.close_connection = True  # the client ran out of patience, which some tests want

        def log_message(self, *_: object) -> None:
            """Nothing on the terminal."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True)
    thread.start()
    stub.url = f"http://127.0.0.1:{server.server_address[1]}/v1"
    try:
        yield stub
    finally:
        server.shutdown()
        server.server_close()


def _completion(stub: Stub, body: Body, text: str) -> dict[str, Any]:
    read = sum(len(str(message["content"]).split()) for message in body["messages"])
    usage: dict[str, Any] = {
        "prompt_tokens": read, "completion_tokens": len(text.split()), "total_tokens": read + len(text.split()),
    }  # fmt: skip
    if stub.cached is not None:
        usage["prompt_tokens_details"] = {"cached_tokens": stub.cached}
    return {
        "id": "c1", "object": "chat.completion", "created": 0, "model": body["model"],
        "choices": [{"index": 0, "finish_reason": "stop", "message": {"role": "assistant", "content": text}}],
        **({"usage": usage} if stub.usage else {}),
    }  # fmt: skip


def in_turn(replies: Sequence[str]) -> Answer:
    """Answers with each text once, then with the last one for ever."""
    left = list(replies)

    def answer(body: Body) -> str:
        return left.pop(0) if len(left) > 1 else left[0]

    return answer


def relations(script: Mapping[tuple[str, str], str], otherwise: str = "IND") -> Answer:
    """Answers relation questions by (old, new); a value that is no relation is sent as it is."""

    def answer(body: Body) -> str:
        old, new = (json.loads(line.partition(": ")[2]) for line in body["messages"][1]["content"].splitlines())
        said = script.get((old, new), otherwise)
        return json.dumps({"relation": said}) if said.isupper() and len(said) == 3 else said

    return answer
