"""What the README shows exists and runs."""

from __future__ import annotations

import importlib.util
import re
import shlex
from pathlib import Path

import pytest

import roam.memory
from roam.cli import build_parser
from roam.memory import Memory
from tests.stubs import HashEmbedder, ScriptedRelations


@pytest.fixture(scope="module")
def readme() -> str:
    return (Path(__file__).parent.parent / "README.md").read_text(encoding="utf-8")


def blocks(readme: str, language: str) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```", readme, flags=re.MULTILINE | re.DOTALL)


def commands(readme: str, program: str) -> list[list[str]]:
    lines = [line for block in blocks(readme, "bash") for line in block.splitlines()]
    return [shlex.split(line, comments=True)[1:] for line in lines if line.startswith(f"{program} ")]


@pytest.mark.unit
def test_the_commands_parse(readme: str) -> None:
    found = commands(readme, "roam")
    assert len(found) > 10
    for argv in found:
        assert build_parser().parse_args(argv).command == argv[0]


@pytest.mark.unit
def test_the_programs_and_targets_exist(readme: str, root: Path) -> None:
    modules = [argv[1] for argv in commands(readme, "python") if argv[0] == "-m"]
    assert {"data.build", "training.relation", "eval.relation", "eval.demo"} <= set(modules)
    assert [name for name in modules if importlib.util.find_spec(name) is None] == []
    makefile = (root / "Makefile").read_text(encoding="utf-8")
    for argv in commands(readme, "make"):
        assert re.search(rf"^{argv[0]}:", makefile, flags=re.MULTILINE), argv
    for path in re.findall(r"^([a-z]+/) ", readme, flags=re.MULTILINE):
        assert (root / path).is_dir(), path


@pytest.mark.integration
def test_the_python_tour_runs(
    readme: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    open_with_models = Memory.open
    script = {("The user lives in Lyon.", "The user now lives in Ghent."): "CON"}

    def open_with_stubs(path: str) -> Memory:
        return open_with_models(path, manager=ScriptedRelations(script), embedder=HashEmbedder())

    monkeypatch.setattr(roam.memory.Memory, "open", open_with_stubs)
    monkeypatch.chdir(tmp_path)
    [tour] = blocks(readme, "python")
    exec(compile(tour, "README.md", "exec"), {})
    printed = capsys.readouterr().out
    assert printed.startswith("CON ")
    assert "Ghent" in printed
    assert "['The user lives in Lyon.']" in printed
