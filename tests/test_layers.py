"""Imports run one way (roam < data < eval < training), and importing roam stays light."""

from __future__ import annotations

import ast
import resource
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

LAYERS = ("roam", "data", "eval", "training")
HEAVY = frozenset({
    "accelerate", "datasets", "huggingface_hub", "matplotlib", "onnx", "onnxruntime", "pandas", "peft", "safetensors",
    "scipy", "sentence_transformers", "sklearn", "tokenizers", "torch", "transformers",
})  # fmt: skip
LIGHT_START = 0.3  # seconds


def is_type_checking(node: ast.stmt) -> bool:
    return isinstance(node, ast.If) and ast.unparse(node.test) in {"TYPE_CHECKING", "typing.TYPE_CHECKING"}


def names_of(node: ast.AST) -> list[str]:
    """Modules that one import statement, or one `import_module("...")` call, names."""
    if isinstance(node, ast.Import):
        return [alias.name for alias in node.names]
    if isinstance(node, ast.ImportFrom) and node.level == 0 and node.module:
        return [node.module]
    if (
        isinstance(node, ast.Call)
        and ast.unparse(node.func).endswith(("import_module", "__import__"))
        and node.args
        and isinstance(node.args[0], ast.Constant)
    ):
        return [str(node.args[0].value)]
    return []


def imported(source: str) -> set[str]:
    """Top-level packages imported anywhere in a file."""
    return {name.partition(".")[0] for node in ast.walk(ast.parse(source)) for name in names_of(node)}


def imported_at_load(source: str) -> set[str]:
    """Top-level packages that importing the file imports: statements outside functions and TYPE_CHECKING."""

    def statements(body: list[ast.stmt]) -> Iterator[ast.stmt]:
        for node in body:
            if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)) or is_type_checking(node):
                continue
            yield node
            for field in ("body", "orelse", "finalbody"):
                yield from statements(getattr(node, field, []))
            for handler in getattr(node, "handlers", []):
                yield from statements(handler.body)

    return {name.partition(".")[0] for node in statements(ast.parse(source).body) for name in names_of(node)}


def above(package: str) -> set[str]:
    """Packages that `package` may not import, tests included."""
    return {*LAYERS[LAYERS.index(package) + 1 :], "tests"}


def sources(root: Path, package: str) -> list[Path]:
    files = sorted((root / package).rglob("*.py"))
    assert files, f"no Python file under {package}/"
    return files


@pytest.mark.unit
@pytest.mark.parametrize("package", LAYERS)
def test_imports_run_one_way(root: Path, package: str) -> None:
    wrong = {
        str(file.relative_to(root)): sorted(found)
        for file in sources(root, package)
        if (found := imported(file.read_text(encoding="utf-8")) & above(package))
    }
    assert wrong == {}


@pytest.mark.unit
def test_heavy_packages_are_not_imported_when_roam_modules_load(root: Path) -> None:
    wrong = {
        str(file.relative_to(root)): sorted(found)
        for file in sources(root, "roam")
        if (found := imported_at_load(file.read_text(encoding="utf-8")) & HEAVY)
    }
    assert wrong == {}


@pytest.mark.unit
@pytest.mark.parametrize(
    ("source", "anywhere", "at_load"),
    [
        ("import data.pairs", {"data"}, {"data"}),
        ("from eval import metrics", {"eval"}, {"eval"}),
        ("def f():\n    import torch", {"torch"}, set()),
        ("class C:\n    import torch", {"torch"}, {"torch"}),
        ("if TYPE_CHECKING:\n    import torch", {"torch"}, set()),
        (
            "try:\n    import a\nexcept E:\n    import b\nelse:\n    import c\nfinally:\n    import d",
            set("abcd"),
            set("abcd"),
        ),
        ("from . import data", set(), set()),
        ("import importlib\nimportlib.import_module('training.config')", {"importlib", "training"}, {"importlib"}),
    ],
)
def test_the_import_reader_sees(source: str, anywhere: set[str], at_load: set[str]) -> None:
    assert imported(source) == anywhere
    assert imported_at_load(source) == at_load


@pytest.mark.unit
def test_import_roam_loads_nothing_heavy() -> None:
    script = (
        "import sys, roam, roam.cli; roam.cli.build_parser(); print(*{name.partition('.')[0] for name in sys.modules})"
    )
    loaded = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True).stdout.split()
    assert "roam" in loaded
    assert set(loaded) & (HEAVY | {"numpy", "apsw", "sqlite_vec", "tqdm"}) == set()


@pytest.mark.unit
def test_help_answers_at_once() -> None:
    def seconds() -> float:
        # Processor time rather than the clock's: other programs on the machine must not fail this.
        before = resource.getrusage(resource.RUSAGE_CHILDREN)
        subprocess.run([sys.executable, "-m", "roam", "--help"], capture_output=True, check=True)
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
        return (after.ru_utime + after.ru_stime) - (before.ru_utime + before.ru_stime)

    assert min(seconds() for _ in range(5)) < LIGHT_START
