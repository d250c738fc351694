"""Whole stores as JSONL: the same state without a model, the same bytes again, and nothing from a damaged file."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from roam.cli import main
from roam.errors import DataError, InputError, StoreError
from roam.memory import Memory
from roam.transfer import export_lines
from tests.stubs import HashEmbedder, JoinFuser, ScriptedRelations

pytestmark = pytest.mark.both_back_ends

PARIS, ROME, TEA = "Maya lives in Paris.", "Maya lives in Rome.", "Maya likes tea."


def open_memory(path: str | Path = ":memory:", dimension: int = 64, **settings: bool) -> Memory:
    model = ScriptedRelations({(PARIS, ROME): ("CON", 0.7), (ROME, TEA): "CON"})
    parts = {"manager": model, "embedder": HashEmbedder(dimension), "fusion": JoinFuser()}
    return Memory.open(path, thresholds={"CON": 0.8}, **parts, **settings)  # type: ignore[arg-type]


def fill(memory: Memory) -> None:
    """Every kind of row: doubt, verdict, retraction, undo, replay, erasures, two users."""
    memory.add(PARIS, user="maya", id="p", observed_at="2026-01-01", source="chat-1")
    memory.add_many([{"text": ROME, "user": "maya", "id": "r"}, {"text": PARIS, "user": "bob", "id": "b1"}])
    memory.add("Gone soon \u2028 caf\u00e9.", user="maya", id="gone")
    memory.add(TEA, user="maya", id="t", observed_at="2026-02-01")
    memory.decide("r", "p", "CON")
    memory.undo(memory.retract("t").id)
    memory.apply(memory.replay(user="maya", thresholds={"CON": 0.99}))
    memory.erase("gone")
    memory.add(ROME, user="bob", id="b2")
    memory.add("Somebody else.", user="left")
    memory.erase_user("left")


@pytest.fixture
def memory(tmp_path: Path) -> Iterator[Memory]:
    with open_memory(tmp_path / "m.db") as memory:
        fill(memory)
        yield memory


@pytest.fixture(scope="module")
def lines() -> list[str]:
    """The lines of an export, the empty one after the last included."""
    with open_memory() as memory:
        fill(memory)
        return [*export_lines(memory._store, memory.users(), receipts=True), ""]


@pytest.fixture
def exported(memory: Memory, tmp_path: Path) -> Path:
    memory.export_jsonl(tmp_path / "all.jsonl")
    return tmp_path / "all.jsonl"


def everything(memory: Memory) -> object:
    """All that can be read of a store, but for row numbers."""
    return [
        (
            user,
            memory.primaries(user=user),
            [(e.id, e.kind, e.recorded_at, e.decision, e.change, e.verdict) for e in memory.history(user=user)],
            [(pair.decision_id, pair.new.id, pair.old.id) for pair in memory.reviews(user=user)],
            memory.as_of("2026-01-15", user=user),
        )
        for user in memory.users()
    ]


@pytest.mark.parametrize("dimension", [64, 32])
def test_an_imported_store_has_the_same_state_and_exports_the_same_bytes(
    memory: Memory, exported: Path, tmp_path: Path, dimension: int
) -> None:
    with open_memory(tmp_path / "new.db", dimension) as twin:
        twin.add("Was here before.", user="other")  # row numbers differ from those of the first store
        twin.erase_user("other")
        report = twin.import_jsonl(exported)
        assert (report.users, report.observations, report.skipped) == (2, 5, ())
        assert everything(twin) == everything(memory)
        assert twin.stats.forward_passes == 0
        assert twin.verify().problems == ()
        assert twin.search("Rome", user="bob").hits[0].id == "b2"
        for user in ("maya", "bob"):
            assert twin.export_jsonl(tmp_path / "a", user=user) == memory.export_jsonl(tmp_path / "b", user=user)
            assert (tmp_path / "a").read_bytes() == (tmp_path / "b").read_bytes()
        # The log goes on as in the first store.
        for store in (memory, twin):
            store.retract("p")
            store.add("Maya lives in Oslo.", user="maya", id="o")
        assert twin.primaries(user="maya") == memory.primaries(user="maya")
    with open_memory(tmp_path / "fresh.db", dimension) as twin:
        twin.import_jsonl(exported)
        twin.export_jsonl(tmp_path / "again.jsonl")
    assert (tmp_path / "again.jsonl").read_bytes() == exported.read_bytes()


def test_a_repeated_import_changes_nothing_and_other_content_is_refused(
    memory: Memory, exported: Path, tmp_path: Path
) -> None:
    before = everything(memory)
    assert memory.import_jsonl(exported).skipped == ("maya", "bob") or memory.import_jsonl(exported).users == 0
    assert everything(memory) == before
    memory.add("One more.", user="bob")
    before = everything(memory)
    with pytest.raises(InputError, match="'bob' is in this store with other content"):
        memory.import_jsonl(exported)
    assert everything(memory) == before
    with open_memory(tmp_path / "other.db") as other:
        other.add("An id of its own.", user="zoe", id="b2")
        with pytest.raises(InputError, match="'b2' is taken"):
            other.import_jsonl(exported)
        assert other.users() == ["zoe"]
        assert other.verify().ok


def seal(lines: list[str]) -> str:
    body = "".join(f"{line}\n" for line in lines)
    end = {"kind": "end", "lines": len(lines), "sha256": hashlib.sha256(body.encode()).hexdigest()}
    return body + json.dumps(end, separators=(",", ":")) + "\n"


def without_a_decision(lines: list[str]) -> str:
    return seal([line for line in lines if '"event":"decision","observation_id":"p"' not in line])


def with_bad_lines(lines: list[str]) -> str:
    return seal([lines[0], "{", '{"kind":"fact","user":"u"}', '{"kind":"observation","user":" u"}', *lines[1:]])


@pytest.mark.parametrize(
    ("damage", "message"),
    [
        (lambda lines: "\n".join(lines[:-2]), "cut off or altered"),
        (lambda lines: "\n".join(lines)[:-3], "cut off or altered"),
        (lambda lines: "\n".join(lines).replace("Paris", "Milan"), "cut off or altered"),
        (lambda lines: "\n".join(lines).replace('"version":1', '"version":2', 1), "upgrade roam"),
        (lambda lines: "\n".join(lines[1:]), "no export of a store"),
        (lambda lines: with_bad_lines(lines[:-2]), r"3 bad lines \(line 2: .*line 3: .*line 4: "),
        (lambda lines: without_a_decision(lines[:-2]), "no sound log"),
        (lambda lines: "", "no export of a store"),
    ],
)
def test_a_damaged_export_is_refused_whole(
    lines: list[str], damage: Callable[[list[str]], str], message: str, tmp_path: Path
) -> None:
    file = tmp_path / "damaged.jsonl"
    file.write_text(damage(lines), "utf-8", newline="\n")
    with open_memory() as other:
        with pytest.raises(DataError, match=message):
            other.import_jsonl(file)
        assert other.users() == []


def test_an_export_that_fails_leaves_the_file_that_was_there(
    memory: Memory, exported: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = exported.read_bytes()

    def fail(*arguments: object) -> None:
        raise OSError(28, "No space left on device")

    memory.add("One more.", user="bob")
    monkeypatch.setattr("os.fsync", fail)
    with pytest.raises(StoreError, match="No space left"):
        memory.export_jsonl(exported)
    assert exported.read_bytes() == before
    assert not list(exported.parent.glob(".*.part"))
    with pytest.raises(InputError, match="existing folder"):
        memory.export_jsonl(exported.parent / "no" / "such")


def test_S21_reindexing_binds_a_store_to_another_embedder(memory: Memory, tmp_path: Path) -> None:
    before = everything(memory)
    memory.close()
    with pytest.raises(StoreError, match="reindex=True"):
        open_memory(tmp_path / "m.db", 32)
    with open_memory(tmp_path / "m.db", 32, reindex=True) as again:
        assert again.verify().problems == ()
    with open_memory(tmp_path / "m.db", 32) as again:
        assert everything(again) == before
        assert again.search("Rome", user="bob").hits[0].id == "b2"


@pytest.mark.sqlite
def test_export_and_import_on_the_command_line(
    memory: Memory, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    before = everything(memory)
    memory.close()

    def run(*argv: str) -> tuple[int, str, str]:
        code = main(argv, memory_factory=open_memory)
        captured = capsys.readouterr()
        return code, captured.out, captured.err

    old, new, file = str(tmp_path / "m.db"), str(tmp_path / "new.db"), str(tmp_path / "x.jsonl")
    code, out, _ = run("export", file, "--db", old)
    assert (code, out.endswith(f"lines written to {file}\n")) == (0, True)
    assert run("export", "-", "--db", old)[1] == Path(file).read_text("utf-8")
    assert run("import", file, "--db", new, "--user", "maya")[0] == 2
    assert not Path(new).exists()
    assert run("import", file, "--db", new)[1].startswith("2 users, 5 observations")
    with open_memory(new) as twin:
        assert everything(twin) == before
    Path(file).write_text(Path(file).read_text("utf-8").replace("Rome", "Bonn"), "utf-8")
    code, out, error = run("import", file, "--db", str(tmp_path / "third.db"))
    assert (code, out, error.count("\n"), (tmp_path / "third.db").exists()) == (2, "", 1, False)


@pytest.mark.sqlite
def test_review_and_redo_on_the_command_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    db = str(tmp_path / "m.db")
    with open_memory(db) as memory:
        memory.add(PARIS, user="maya", id="p")
        memory.add(ROME, user="maya", id="r")

    def run(*argv: str) -> tuple[int, str]:
        code = main([*argv, "--db", db], memory_factory=open_memory)
        return code, capsys.readouterr().out

    assert all(part in run("review", "--user", "maya")[1] for part in ("CON 0.70", "old p", PARIS, "new r", ROME))
    code, out = run("review", "--user", "maya", "--decide", "r", "p", "con", "--json")
    event = json.loads(out)
    assert (code, event["kind"], event["verdict"]) == (0, "review", {"old_id": "p", "relation": "CON"})
    assert run("review", "--user", "maya") == (0, "nothing to review\n")
    pairs = tmp_path / "pairs.jsonl"
    assert run("review", "--user", "maya", "--pairs", str(pairs)) == (0, f"1 pairs written to {pairs}\n")
    assert json.loads(pairs.read_text("utf-8"))["label"] == "CON"
    assert run("undo", event["id"])[0] == 0
    assert "CON to p" in run("history", "--user", "maya")[1]
    assert PARIS in run("review", "--user", "maya")[1]
    assert run("redo", event["id"])[0] == 0
    assert run("redo", event["id"])[0] == 2
    assert run("review", "--user", "maya", "--decide", "r", "p", "maybe")[0] == 2
    assert run("review", "--user", "maya") == (0, "nothing to review\n")
