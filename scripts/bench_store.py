"""How adding and searching grow with the store: `python scripts/bench_store.py --out reports/store`.

Two curves on SQLite, and with --postgres on a server too: the Primaries of one user grow, and the users of a store
grow, each with 100 facts. Beside them stands a bare scan of the same vectors in the same database, without log, roles
or relations. Vectors are drawn, so that no encoder is timed; the relation model says IND at once, so that no model
pass is timed. `cpu` is the processor time of this process alone: it does not depend on what else the machine does, and
leaves out the disk and a server. Writes DIR/store.json, store.md and store.png.

`--postgres URL` names an empty schema of a server (its tables are dropped and made anew), for example
'postgresql://bench@localhost/bench?options=-csearch_path%3Dbench,public'.
"""

from __future__ import annotations

import argparse
import json
import platform
import resource
import statistics
import sys
import tempfile
import time
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from types import MappingProxyType
from typing import Any

import numpy as np
from numpy.typing import NDArray
from tqdm import tqdm

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))  # so that `python scripts/bench_store.py` finds the package

from roam.events import Event, EventKind, new_event_id, now  # noqa: E402
from roam.memory import Memory  # noqa: E402
from roam.records import Decision, Observation, Pair  # noqa: E402
from roam.relations import INDEX, RELATIONS, Relation  # noqa: E402
from roam.vectors import VectorKind, nearest, put_vector  # noqa: E402

DIMENSION = 384
TOPICS = 200
CHUNK = 5_000  # records a transaction when a store is filled
SIZES = (1_000, 5_000, 20_000, 50_000)
RECORDS = (1_000, 10_000, 100_000, 1_000_000)
SHARE = 100  # records of each user in a store of many


class DrawnEmbedder:
    """Vectors around one of some topics, drawn from the text: alike for a text each time, and cheap."""

    dimension = DIMENSION
    digest = "drawn-384"

    def __init__(self) -> None:
        self._topics = np.random.default_rng(0).standard_normal((TOPICS, DIMENSION)).astype(np.float32)

    def embed(self, texts: Sequence[str]) -> NDArray[np.float32]:
        """Vectors of shape (len(texts), 384), L2-normalised."""
        out = np.empty((len(texts), DIMENSION), dtype=np.float32)
        for row, text in zip(out, texts, strict=True):
            number = int(text.rstrip(".?").rpartition(" ")[2])
            row[:] = self._topics[number % TOPICS] + np.random.default_rng(number).standard_normal(DIMENSION)
        return out / np.linalg.norm(out, axis=1, keepdims=True)

    def count_tokens(self, text: str) -> int:
        """Number of words."""
        return len(text.split())

    def truncate(self, text: str, tokens: int) -> str:
        """The first words."""
        return " ".join(text.split()[:tokens])


class Independent:
    """A relation model that takes every two facts for independent, at once."""

    digest = "independent"
    thresholds = MappingProxyType[Relation, float]({})

    def predict_proba(self, pairs: Sequence[Pair]) -> NDArray[np.float32]:
        """Probabilities of shape (len(pairs), 5)."""
        out = np.zeros((len(pairs), len(RELATIONS)), dtype=np.float32)
        out[:, INDEX[Relation.IND]] = 1.0
        return out


EMBEDDER = DrawnEmbedder()


def text_of(number: int) -> str:
    """A fact, of about the length of real ones."""
    return f"The user has noted down something about a thing that is known by the number {number}."


def fill(memory: Memory, start: int, stop: int, user_of: Callable[[int], str]) -> None:
    """Write records as `add` would write independent facts, many a transaction."""
    store = memory._store
    for first in tqdm(range(start, stop, CHUNK), desc=f"fill to {stop}", disable=None, leave=False):
        numbers = range(first, min(first + CHUNK, stop))
        vectors = EMBEDDER.embed([text_of(number) for number in numbers])
        with store.transaction(None):
            for number, vector in zip(numbers, vectors, strict=True):
                write_one(memory, Observation(text_of(number), user_of(number), None, None, f"id-{number}"), vector)
    for user in {user_of(start), user_of(stop - 1)}:
        store.signs.forget(user)


def write_one(memory: Memory, observation: Observation, vector: NDArray[np.float32]) -> None:
    """Write one independent fact."""
    from dataclasses import replace

    store, moment = memory._store, now()
    stored = replace(observation, sequence=store.insert_observation(observation, moment))
    decision = Decision(new_event_id(), stored.id, Relation.IND, stored.id, (), (), (), ())
    store.append_event(Event(decision.id, stored.user, EventKind.DECISION, moment, 0, stored.id, decision=decision))
    store.place(stored, stored.id, stored.text)
    for kind in (VectorKind.ATOMIC, VectorKind.VIEW):
        put_vector(store, stored.user, kind, stored.sequence, vector)


def median_ms(work: Callable[[int], object], numbers: Sequence[int]) -> dict[str, float]:
    """Milliseconds of `work` on each number: median, 95th percentile, and median of processor time."""
    spent, busy = [], []
    for number in numbers:
        started, used = time.perf_counter(), time.process_time()
        work(number)
        busy.append((time.process_time() - used) * 1000)
        spent.append((time.perf_counter() - started) * 1000)
    p95 = sorted(spent)[int(0.95 * (len(spent) - 1))]
    return {"p50": round(statistics.median(spent), 3), "p95": round(p95, 3), "cpu": round(statistics.median(busy), 3)}


def measure(memory: Memory, size: int, user: str, repeats: int) -> dict[str, Any]:
    """Time adding, searching and a bare scan on a store as it is; what was added is taken out by the caller's sizes."""
    fresh = [10_000_000 + size * 10 + number for number in range(repeats)]
    queries = (size - 1 - np.random.default_rng(size).integers(SHARE, size=repeats)).tolist()
    search: Callable[[int], object] = lambda number: memory.search(text_of(number), user=user, budget=256)  # noqa: E731
    search(queries[0])  # the first search of a large user reads its vectors
    return {
        "size": size,
        "search_ms": median_ms(search, queries),
        "add_ms": median_ms(lambda number: memory.add(text_of(number), user=user), fresh),
        "bare_ms": median_ms(lambda number: bare(memory, user, number), queries),
        "recall_at_10": recall(memory, user, queries[:20]),
        "memory_mb": round(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024),
    }


def bare(memory: Memory, user: str, number: int) -> list[tuple[int, float]]:
    """The ten nearest by a scan of the table of vectors: what a vector database without an index does."""
    store, before = memory._store, memory._store.signs.exact_up_to
    store.signs.exact_up_to, held = 2**40, dict(store.signs._held)
    store.signs._held.clear()
    try:
        with memory._reading(user):
            return nearest(store, user, VectorKind.VIEW, EMBEDDER.embed([text_of(number)])[0], 10)
    finally:
        store.signs.exact_up_to = before
        store.signs._held.update(held)


def recall(memory: Memory, user: str, numbers: Sequence[int]) -> float:
    """Share of the ten nearest that the store's own search finds."""
    found = []
    for number in numbers:
        true = {sequence for sequence, _ in bare(memory, user, number)}
        with memory._reading(user) as store:
            got = nearest(store, user, VectorKind.VIEW, EMBEDDER.embed([text_of(number)])[0], 10)
        found.append(len(true & {sequence for sequence, _ in got}) / len(true))
    return round(float(np.mean(found)), 4)


@contextmanager
def opened(address: str) -> Iterator[Memory]:
    """An empty store."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        memory = Memory.open(address, manager=Independent(), embedder=EMBEDDER, fusion="off", floor=0.2)
    with memory:
        if memory.users():
            raise SystemExit(f"bench_store: {memory._store.db.path} is not empty: name an empty schema")
        yield memory


def curve(address: str, sizes: Sequence[int], user_of: Callable[[int], str], repeats: int) -> list[dict[str, Any]]:
    """Fill one store step by step and measure at each size."""
    rows, start = [], 0
    with opened(address) as memory:
        for size in sizes:
            fill(memory, start, size, user_of)
            start = size
            rows.append(measure(memory, size, user_of(size - 1), repeats))
            print(json.dumps(rows[-1]), flush=True)
    return rows


def mem0_curve(sizes: Sequence[int], repeats: int) -> list[dict[str, Any]]:
    """The same of a mem0 store; it takes facts one by one only."""
    from mem0_store import Mem0Store

    rows, start = [], 0
    with tempfile.TemporaryDirectory() as folder:
        store = Mem0Store(Path(folder), EMBEDDER)
        for size in sizes:
            for number in tqdm(range(start, size), desc=f"fill to {size}", disable=None, leave=False):
                store.add(text_of(number))
            start = size
            queries = (size - 1 - np.random.default_rng(size).integers(SHARE, size=repeats)).tolist()
            fresh = [10_000_000 + size * 10 + number for number in range(repeats)]
            search = median_ms(lambda number: store.search(text_of(number)), queries)
            add = median_ms(lambda number: store.add(text_of(number)), fresh)
            rows.append({"size": size, "search_ms": search, "add_ms": add})
            print(json.dumps(rows[-1]), flush=True)
    return rows


@contextmanager
def addresses(postgres: str | None) -> Iterator[dict[str, Callable[[str], str]]]:
    """Where each back end keeps the store of a curve."""
    with tempfile.TemporaryDirectory() as folder:
        found: dict[str, Callable[[str], str]] = {"sqlite": lambda name: str(Path(folder) / f"{name}.db")}
        if postgres == "pgserver":
            from tests.back_ends import Schemas, server

            schemas = Schemas(server())
            found["postgres"] = schemas.address
            yield found
            schemas.drop()
            return
        if postgres:
            found["postgres"] = lambda name: postgres.replace("{curve}", name)
        yield found


def table(curves: dict[str, list[dict[str, Any]]]) -> str:
    """The figures as Markdown."""
    lines = ["| curve | size | add p50 (cpu) ms | search p50 (cpu) ms | bare scan p50 (cpu) ms | recall@10 | MB |",
             "| --- | ---: | ---: | ---: | ---: | ---: | ---: |"]  # fmt: skip
    for name, rows in curves.items():
        for row in rows:
            cells = [
                f"{row[key]['p50']:.2f} ({row[key]['cpu']:.2f})" if key in row else "-"
                for key in ("add_ms", "search_ms", "bare_ms")
            ]
            cells += [str(row.get(key, "-")) for key in ("recall_at_10", "memory_mb")]
            lines.append(f"| {name} | {row['size']:,} | {' | '.join(cells)} |")
    return "\n".join(lines)


def picture(curves: dict[str, list[dict[str, Any]]], path: Path) -> None:
    """Milliseconds over size, both on logarithmic axes."""
    import matplotlib as mpl

    mpl.use("Agg")
    import matplotlib.pyplot as plt

    figure, axes = plt.subplots(1, 3, figsize=(13, 4), sharey=True, layout="constrained")
    for axis, (key, title) in zip(
        axes, (("add_ms", "add"), ("search_ms", "search"), ("bare_ms", "bare scan, 10 nearest")), strict=True
    ):
        for name, rows in curves.items():
            shown = [row for row in rows if key in row]
            axis.plot([row["size"] for row in shown], [row[key]["p50"] for row in shown], marker="o", label=name)
        axis.set(title=title, xscale="log", yscale="log", xlabel="Primaries of one user, or records of all")
    axes[0].set_ylabel("milliseconds, p50")
    axes[0].legend(fontsize="small")
    figure.savefig(path, dpi=120)
    plt.close(figure)


def main(argv: Sequence[str] | None = None) -> int:
    """Measure, and write the report."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, required=True, metavar="DIR", help="folder for the report")
    parser.add_argument("--sizes", type=int, nargs="+", default=SIZES, metavar="N", help="Primaries of one user")
    parser.add_argument("--records", type=int, nargs="+", default=RECORDS, metavar="N", help="records of all users")
    parser.add_argument("--repeats", type=int, default=100, metavar="N", help="calls a figure (default: %(default)s)")
    parser.add_argument(
        "--postgres", metavar="URL",
        help="also measure on this server; {curve} in it stands for the curve's name; 'pgserver' starts one for it",
    )  # fmt: skip
    parser.add_argument("--mem0", type=int, nargs="+", metavar="N", help="also a mem0 store of these sizes (mem0ai)")
    args = parser.parse_args(argv)
    curves: dict[str, list[dict[str, Any]]] = {}
    with addresses(args.postgres) as found:
        for back_end, address in found.items():
            curves[f"{back_end}, one user"] = curve(address("one"), args.sizes, lambda number: "user", args.repeats)
            curves[f"{back_end}, users of {SHARE}"] = curve(
                address("many"), args.records, lambda number: f"user-{number // SHARE}", args.repeats
            )
    if args.mem0:
        curves["mem0 (infer off), one user"] = mem0_curve(args.mem0, args.repeats)
    args.out.mkdir(parents=True, exist_ok=True)
    machine = {"python": platform.python_version(), "machine": platform.machine(), "repeats": args.repeats}
    (args.out / "store.json").write_text(json.dumps({"machine": machine, "curves": curves}, indent=2) + "\n", "utf-8")
    (args.out / "store.md").write_text(table(curves) + "\n", "utf-8")
    picture(curves, args.out / "store.png")
    print(table(curves))
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
