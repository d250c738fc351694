"""Every command and every program of the tutorials and of the deployment pages, run with small models."""

from __future__ import annotations

import importlib
import json
import re
import shlex
import sqlite3
from pathlib import Path
from typing import Any, NamedTuple

import pytest

import roam.memory
from roam.cli import build_parser, main
from roam.fusion import DeterministicFuser
from roam.managers import Manager
from roam.memory import Memory
from tests.llm_server import Body, serving
from tests.stubs import HashEmbedder, ScriptedRelations

ROOT = Path(__file__).parent.parent
PAGES = sorted([*(ROOT / "scripts" / "tutorials").glob("*.md"), *(ROOT / "scripts" / "deploy").glob("*.md")])
TUTORIALS = ROOT / "scripts" / "tutorials"
LYON, GHENT, DOG, BEAGLE = (
    "The user lives in Lyon.", "The user now lives in Ghent.", "Has a dog.", "Has a beagle named Otto.",
)  # fmt: skip
SCRIPT = {(LYON, GHENT): "CON", (DOG, BEAGLE): "OSN", (LYON, "The user may be living in Ghent."): ("CON", 0.6)}


class Block(NamedTuple):
    """One fenced block: its language, the file that it is the content of, and its text."""

    language: str
    file: str
    text: str


def blocks(page: Path) -> list[Block]:
    found = re.findall(r"^```(\w+) ?(\S*)\n(.*?)^```$", page.read_text(encoding="utf-8"), flags=re.M | re.S)
    return [Block(*parts) for parts in found]


def commands(block: Block) -> list[list[str]]:
    joined = re.sub(r"\\\n\s*", " ", block.text)
    return [words for line in joined.splitlines() if (words := shlex.split(line, comments=True))]


def open_stub(path: str | Path, *, manager: Any = None, **options: Any) -> Memory:
    model = manager if hasattr(manager, "predict_proba") else ScriptedRelations(SCRIPT)
    thresholds = {"CON": 0.8} if isinstance(model, ScriptedRelations) else None
    return REAL_OPEN(path, manager=model, embedder=HashEmbedder(), thresholds=thresholds)


REAL_OPEN = Memory.open


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A working folder that looks like the repository's root, where every store has small models."""
    for name in ("configs", "data"):
        (tmp_path / name).symlink_to(ROOT / name)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(roam.memory.Memory, "open", staticmethod(open_stub))
    return tmp_path


def run_roam(argv: list[str]) -> None:
    code = main(
        argv,
        memory_factory=open_stub,
        manager_loader=lambda: Manager(ScriptedRelations(SCRIPT), DeterministicFuser()),
    )
    allowed = (0, 1) if argv[0] == "doctor" else (0,)  # what is installed here is not the tutorial's business
    assert code in allowed, argv


def run_page(page: Path, programs: dict[str, Any] | None = None) -> None:
    """Write the files of a page, and run its commands and programs in their order."""
    for block in blocks(page):
        if block.file:
            Path(block.file).write_text(block.text, encoding="utf-8")
        elif block.language == "python":
            exec(compile(block.text, page.name, "exec"), {})
        elif block.language == "bash":
            for words in commands(block):
                if words[0] == "roam":
                    run_roam(words[1:])
                else:
                    assert words[:2] == ["python", "-m"], words
                    (programs or {}).get(words[2], run_module)(words[2], words[3:])


def run_module(name: str, argv: list[str]) -> None:
    assert importlib.import_module(name).main(argv) == 0, (name, argv)


@pytest.mark.unit
@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_commands_parse_programs_exist_and_links_lead_somewhere(page: Path) -> None:
    for block in blocks(page):
        if block.language not in ("bash", "text"):
            continue
        for line in block.text.splitlines():
            if line.startswith("roam "):
                argv = shlex.split(line, comments=True)[1:]
                assert build_parser().parse_args(argv).command == argv[0]
            elif line.startswith("python -m "):
                assert importlib.util.find_spec(line.split()[2]) is not None, line
            elif line.startswith(("python scripts/", "pytest ")):
                assert (ROOT / line.split()[1]).is_file() or line.startswith("pytest"), line
    text = page.read_text(encoding="utf-8")
    for target in re.findall(r"\]\((?!http)([^)#]+)\)", text):
        assert (page.parent / target).exists(), target
    for target in re.findall(r"`(scripts/[\w./-]+)`", text):
        assert (ROOT / target).exists(), target


@pytest.mark.integration
def test_the_memory_in_an_agent(place: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run_page(TUTORIALS / "agent.md")
    printed = capsys.readouterr().out
    assert "<notes>" in printed
    assert "Ghent" in printed
    assert "['Has a dog.'" in printed
    for block in blocks(TUTORIALS / "agent.md"):
        if block.language == "json":
            server = json.loads(block.text)["mcpServers"]["memory"]
            assert build_parser().parse_args(server["args"]).user == "maya"


@pytest.mark.integration
def test_moving_over_from_mem0(place: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with sqlite3.connect("history.db") as database:
        database.execute(
            "CREATE TABLE history (id, memory_id, old_memory, new_memory, event, created_at, updated_at, is_deleted, "
            "actor_id, role)"
        )
        database.execute(
            "INSERT INTO history (id, memory_id, new_memory, event, created_at) VALUES ('1', 'm', ?, 'ADD', ?)",
            (LYON, "2026-01-05"),
        )
    database.close()
    run_page(TUTORIALS / "mem0.md")
    last = capsys.readouterr().out.splitlines()[-1]
    assert LYON in last
    assert "beagle" in last
    with open_stub("moved.db") as memory:
        assert sorted(memory.users()) == ["agent_id:coach", "maya"]


@pytest.mark.integration
def test_labelling_by_two_teachers_ends_in_pairs_and_in_a_review(place: Path) -> None:
    relations = {GHENT: "CON", BEAGLE: "OSN", "Is fond of green tea.": "EQV", "Plays chess.": "NSO"}

    def teacher(body: Body) -> str:
        told = next((relation for new, relation in relations.items() if f'"{new}"' in str(body["messages"])), "IND")
        return json.dumps({"relation": told})

    with serving(teacher) as one, serving(lambda body: '{"relation": "CON"}') as other:
        urls = {"8080": one.url, "8081": other.url}

        def label(name: str, argv: list[str]) -> None:
            run_module(name, [re.sub(r"http://localhost:(\d+)/v1", lambda m: urls[m[1]], word) for word in argv])

        def check(name: str, argv: list[str]) -> None:
            assert importlib.import_module(name).main(argv) == 1  # five pairs are too few, and it says so

        run_page(TUTORIALS / "label.md", {"data.label": label, "data.check": check})
    agreed = Path("labelled/labelled.jsonl").read_text(encoding="utf-8").splitlines()
    assert [json.loads(line)["label"] for line in agreed] == ["CON"]
    assert len(Path("labelled/review.jsonl").read_text(encoding="utf-8").splitlines()) == 4
    assert Path("decided.jsonl").exists()
    with open_stub("review.db") as memory:
        assert len(memory.reviews(user="p1")) == 1


@pytest.mark.integration
def test_the_retention_rule_erases_what_is_past_its_time(place: Path) -> None:
    namespace: dict[str, Any] = {}
    for block in blocks(ROOT / "scripts" / "deploy" / "RETENTION.md"):
        if block.language == "python":
            exec(compile(block.text, "RETENTION.md", "exec"), namespace)
    with open_stub("memory.db") as memory:
        memory.add(LYON, user="maya", observed_at="2001-01-05", id="old")
        memory.add(GHENT, user="maya", id="undated")
        memory.add(DOG, user="noor", observed_at="2001-01-05")
        assert namespace["enforce"](memory) == 2
        assert [view.id for view in memory.primaries(user="maya")] == ["undated"]
        assert memory.primaries(user="noor") == []
        assert memory.verify().ok


@pytest.mark.integration
def test_the_notebook_runs(place: Path, capsys: pytest.CaptureFixture[str]) -> None:
    notebook = json.loads((TUTORIALS / "tour.ipynb").read_text(encoding="utf-8"))
    assert (notebook["nbformat"], notebook["nbformat_minor"]) == (4, 5)
    cells = [cell for cell in notebook["cells"] if cell["cell_type"] == "code"]
    assert all(cell["outputs"] == [] for cell in cells)
    namespace: dict[str, Any] = {}
    for cell in cells:
        exec(compile("".join(cell["source"]), "tour.ipynb", "exec"), namespace)
    printed = capsys.readouterr().out
    assert "CON The user now lives in Ghent." in printed
    assert "0 LLM calls" in printed


@pytest.fixture(scope="module")
def tiny_adapter(tmp_path_factory: pytest.TempPathFactory) -> Path:
    from tests.tiny_adapter import save_adapter

    return save_adapter(tmp_path_factory.mktemp("tiny"))


@pytest.mark.integration
def test_training_on_pairs_of_ones_own(place: Path, tiny_adapter: Path) -> None:
    base = tiny_adapter.parent / "base"

    def train(name: str, argv: list[str]) -> None:
        run_module(name, [*argv, f"base={base}", "device=cpu", "precision=fp32", "batch_size=5", "lora_rank=4"])

    def evaluate(name: str, argv: list[str]) -> None:
        run_module(name, [*argv, "--base", str(base)])

    run_page(TUTORIALS / "train.md", {"training.relation": train, "eval.relation": evaluate})
    assert Path("runs/mine/adapter/roam.json").is_file()
    assert json.loads(Path("reports/mine/report.json").read_text(encoding="utf-8"))["per_class"]["CON"]["support"] == 1


@pytest.mark.slow
@pytest.mark.models
def test_evaluating_a_manager(place: Path, tiny_adapter: Path, capsys: pytest.CaptureFixture[str]) -> None:
    def with_tiny(name: str, argv: list[str]) -> None:
        argv = [str(tiny_adapter) if word == "pretrained" else word for word in argv]
        run_module(name, [*argv, "--base", str(tiny_adapter.parent / "base")] if name == "eval.relation" else argv)

    run_page(TUTORIALS / "evaluate.md", {"eval.relation": with_tiny, "eval.false_conflict": with_tiny})
    assert capsys.readouterr().out.rstrip().endswith("0 LLM calls")
    for report in (
        "reports/relation/report.json",
        "reports/false/false_conflict.json",
        "reports/controlled/report.json",
    ):
        assert Path(report).is_file()
