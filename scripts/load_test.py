"""Load on a server of this machine: how long requests take, and whether an acknowledged fact was ever lost.

    python scripts/load_test.py                                  # starts `roam serve` on a store of its own
    python scripts/load_test.py --url http://127.0.0.1:8765      # a server that runs already
    python scripts/load_test.py --clients 32 --requests 4000 --json load.json

Clients keep one connection each and send facts and questions in turn, as fast as they are answered. At the end every
fact whose add was answered is asked for by its id. Only loopback addresses are taken.
"""

from __future__ import annotations

import argparse
import http.client
import json
import random
import signal
import socket
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from urllib.parse import quote, urlsplit

from roam.arguments import ArgumentParser
from roam.errors import InputError, RoamError
from roam.server.settings import is_loopback

START = 300  # seconds: the first start may build the ONNX model
CITIES = ("Lyon", "Ghent", "Porto", "Turin", "Graz", "Bergen", "Leipzig", "Malaga")
THINGS = ("a dog", "a cat", "a canoe", "a piano", "an allotment", "a red bicycle", "two parrots", "a telescope")
FOODS = ("figs", "rye bread", "pickled herring", "lentil soup", "pears", "goat cheese", "dumplings", "fennel")


@dataclass
class Tally:
    """What one kind of request took; `refused` counts answers that ask to come back later."""

    seconds: list[float] = field(default_factory=list)
    refused: int = 0
    failed: int = 0

    def summary(self) -> dict[str, float | int]:
        """Counts, and milliseconds at the usual percentiles."""
        cuts = statistics.quantiles(self.seconds, n=1000, method="inclusive") if len(self.seconds) > 1 else []
        at = {
            f"p{name}_ms": round(1000 * cuts[place - 1], 2)
            for name, place in (("50", 500), ("95", 950), ("99", 990))
            if cuts
        }
        return {"answered": len(self.seconds), "refused": self.refused, "failed": self.failed, **at}


class Client(threading.Thread):
    """One connection that adds facts of one user and asks questions of it."""

    def __init__(self, number: int, host: str, port: int, key: str | None, requests: int, deadline: float) -> None:
        super().__init__(daemon=True)
        self.user, self._requests, self._deadline = f"load-{number}", requests, deadline
        self._random = random.Random(number)
        self._host, self._port = host, port
        self._headers = {"Content-Type": "application/json", **({"Authorization": f"Bearer {key}"} if key else {})}
        self.tallies = {"add": Tally(), "search": Tally()}
        self.acknowledged: list[str] = []

    def run(self) -> None:
        """Send requests until their number or the time is used up."""
        connection = http.client.HTTPConnection(self._host, self._port, timeout=60)
        try:
            for turn in range(self._requests):
                if time.monotonic() > self._deadline:
                    return
                self._one(connection, turn)
        finally:
            connection.close()

    def _one(self, connection: http.client.HTTPConnection, turn: int) -> None:
        if turn % 2 == 0:
            kind, path, wanted = "add", "/v1/memories", 201
            fact_id = f"{self.user}-{turn}"
            body = {"text": self._fact(), "user": self.user, "id": fact_id}
        else:
            kind, path, wanted, fact_id = "search", "/v1/search", 200, ""
            body = {"query": "Where does the user live, and what do they own?", "user": self.user, "budget": 128}
        tally, started = self.tallies[kind], time.perf_counter()
        try:
            connection.request("POST", path, json.dumps(body), self._headers)
            reply = connection.getresponse()
            reply.read()
        except (OSError, http.client.HTTPException):
            tally.failed += 1  # not acknowledged; the next request opens a new connection
            connection.close()
            return
        if reply.status == wanted:
            tally.seconds.append(time.perf_counter() - started)
            if fact_id:
                self.acknowledged.append(fact_id)
        elif reply.status in (429, 503):
            tally.refused += 1
            time.sleep(min(float(reply.headers.get("Retry-After", "1")), 1.0))
        else:
            tally.failed += 1

    def _fact(self) -> str:
        pick = self._random.choice
        return pick(
            (f"The user lives in {pick(CITIES)}.", f"The user owns {pick(THINGS)}.", f"The user likes {pick(FOODS)}.")
        )

    def lost(self) -> list[str]:
        """Acknowledged facts that the store does not have."""
        connection = http.client.HTTPConnection(self._host, self._port, timeout=60)
        missing = []
        for fact_id in self.acknowledged:
            while True:
                connection.request(
                    "GET", f"/v1/memory?user={quote(self.user)}&id={quote(fact_id)}", headers=self._headers
                )
                reply = connection.getresponse()
                reply.read()
                if reply.status != 429:
                    break
                time.sleep(0.2)
            if reply.status != 200:
                missing.append(fact_id)
        connection.close()
        return missing


def check_limits(clients: int, requests: int, seconds: float) -> None:
    """`InputError` for a load that is none."""
    if clients < 1 or requests < clients or not seconds > 0:
        raise InputError(
            f"{clients} clients, {requests} requests, {seconds} s: give 1 client or more, a request each, and some time"
        )


def run_load(url: str, *, clients: int, requests: int, seconds: float, key: str | None = None) -> dict[str, object]:
    """Put load on a server of this machine and return what was measured.

    Raises:
        InputError: an address that is not this machine's.
    """
    check_limits(clients, requests, seconds)
    try:
        parts = urlsplit(url)
        host, port = parts.hostname or "", parts.port or 80
    except ValueError:  # e.g. a port that is none
        host, port = "", 0
    if not is_loopback(host):
        raise InputError(f"url is {url!r}: load is only put on this machine, e.g. http://127.0.0.1:8765")
    started = time.monotonic()
    threads = [Client(number, host, port, key, requests // clients, started + seconds) for number in range(clients)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    took = time.monotonic() - started
    both: dict[str, Tally] = {"add": Tally(), "search": Tally()}
    for thread in threads:
        for kind, tally in thread.tallies.items():
            both[kind].seconds += tally.seconds
            both[kind].refused += tally.refused
            both[kind].failed += tally.failed
    answered = sum(len(tally.seconds) for tally in both.values())
    return {
        "clients": clients,
        "seconds": round(took, 2),
        "requests_per_second": round(answered / took, 1),
        "add": both["add"].summary(),
        "search": both["search"].summary(),
        "acknowledged": sum(len(thread.acknowledged) for thread in threads),
        "lost": sum(len(thread.lost()) for thread in threads),
    }


@contextmanager
def own_server() -> Iterator[str]:
    """`roam serve` on a free port and a store that is thrown away."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    with tempfile.TemporaryDirectory() as folder:
        command = [
            sys.executable, "-m", "roam", "serve", "--db", str(Path(folder) / "load.db"), "--port", str(port),
            "--rate", "1000000", "--burst", "1000000",
        ]  # fmt: skip
        with subprocess.Popen(command, stdout=subprocess.DEVNULL) as process:
            try:
                _wait(port, process)
                yield f"http://127.0.0.1:{port}"
            finally:
                process.send_signal(signal.SIGTERM)
                process.wait(60)


def _wait(port: int, process: subprocess.Popen[bytes]) -> None:
    deadline = time.monotonic() + START  # the port is taken at once, and answers when the models are loaded
    while time.monotonic() < deadline:
        if process.poll() is not None:
            raise InputError(f"`roam serve` ended with code {process.returncode}: see its message above")
        connection = http.client.HTTPConnection("127.0.0.1", port, timeout=START)
        try:
            connection.request("GET", "/v1/health")
            if connection.getresponse().status == 200:
                return
        except OSError:
            time.sleep(0.2)
        finally:
            connection.close()
    raise InputError(f"`roam serve` did not start within {START} s")


def main(argv: list[str] | None = None) -> int:
    """Measure, print a line each, and return 1 when a fact was lost or a request failed."""
    parser = ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--url", help="a server of this machine (default: start one)")
    parser.add_argument("--key", help="an API key for all users, where the server asks for one")
    parser.add_argument("--clients", type=int, default=16, help="connections at once (default: %(default)s)")
    parser.add_argument("--requests", type=int, default=2000, help="requests in all (default: %(default)s)")
    parser.add_argument("--seconds", type=float, default=120.0, help="longest duration (default: %(default)s)")
    parser.add_argument("--json", type=Path, metavar="FILE", help="also write the figures as JSON")
    args = parser.parse_args(argv)
    if args.json and not args.json.absolute().parent.is_dir():
        print(f"load_test: --json {args.json}: there is no such folder, make it first", file=sys.stderr)
        return 2
    limits = {"clients": args.clients, "requests": args.requests, "seconds": args.seconds}
    try:
        if args.url:
            report = run_load(args.url, key=args.key, **limits)
        else:
            check_limits(**limits)  # before a server is started for it
            with own_server() as url:
                report = run_load(url, **limits)
    except (RoamError, OSError) as error:
        print(f"load_test: {error}", file=sys.stderr)
        return 2
    for name, value in report.items():
        print(f"{name:<20} {value}")
    if args.json:
        args.json.write_text(json.dumps(report, indent=2) + "\n", encoding="utf-8")
    failed = sum(report[kind]["failed"] for kind in ("add", "search"))  # type: ignore[index]
    return 1 if report["lost"] or failed else 0


if __name__ == "__main__":
    sys.exit(main())
