"""The GPU scripts: what they run, in which order, with which arguments, and how they refuse."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from data.pairs import write_pairs
from tests.tiny import save_base, toy_pairs

ROOT = Path(__file__).parent.parent
PROGRAMS = ("python", "accelerate", "vllm", "text-embeddings-router")
NOTED = '#!/bin/bash\necho "$(basename "$0") $*" >> "$NOTES"\n'
LABELS = (  # in vLLM's place: it knows the labels
    "import json, os, sys\n"
    "given = dict(zip(sys.argv[2::2], sys.argv[3::2]))\n"
    "labels = json.load(open(os.environ['LABELS']))\n"
    "with open(given['-i']) as asked, open(given['-o'], 'w') as out:\n"
    "    for line in asked:\n"
    "        name = json.loads(line)['custom_id']\n"
    "        message = {'role': 'assistant', 'content': json.dumps({'relation': labels[name]})}\n"
    "        response = {'status_code': 200, 'body': {'choices': [{'message': message}]}}\n"
    "        print(json.dumps({'custom_id': name, 'response': response, 'error': None}), file=out)\n"
)


def program(folder: Path, name: str, content: str) -> None:
    folder.mkdir(exist_ok=True)
    (folder / name).write_text(content)
    (folder / name).chmod(0o755)


def run(script: str, *arguments: str, path: Path, **environment: str) -> subprocess.CompletedProcess[str]:
    """A script with `path` before the system's own programs, so that nothing else of this machine is found."""
    given = os.environ | {"PATH": f"{path}:/usr/bin:/bin"} | environment
    command = ["/bin/bash", str(ROOT / "scripts" / "gpu" / script), *arguments]
    return subprocess.run(command, capture_output=True, text=True, env=given, check=False)


@pytest.fixture
def noting(tmp_path: Path) -> Path:
    """Programs that only write down how they were called."""
    for name in PROGRAMS:
        program(tmp_path / "bin", name, NOTED)
    return tmp_path / "bin"


def said(done: subprocess.CompletedProcess[str], notes: Path) -> list[str]:
    assert done.returncode == 0, done.stderr
    return notes.read_text().splitlines()


@pytest.mark.unit
def test_a_recipe_is_trained_tested_and_merged(noting: Path, tmp_path: Path) -> None:
    notes = tmp_path / "notes"
    (tmp_path / "train.jsonl").touch()
    data = {"NOTES": str(notes), "DATA": str(tmp_path)}
    files = f"train={tmp_path}/train.jsonl dev={tmp_path}/dev.jsonl"
    tested = "--pairs data/relation_test_843.jsonl --out reports/modernbert-base"
    done = run("relation.sh", "modernbert-base", "epochs=1", path=noting, GPUS="4", **data)
    assert said(done, notes) == [
        "accelerate launch --config_file configs/accelerate/ddp.yaml --num_processes 4 -m training.relation "
        f"configs/relation/gpu/modernbert-base.yaml {files} epochs=1",
        f"python -m eval.relation --adapter runs/modernbert-base/adapter {tested}",
        "python -m training.export runs/modernbert-base/adapter --format merged --out runs/modernbert-base/merged",
    ]
    notes.unlink()
    done = run("relation.sh", "qwen3-4b-qlora", "out=o", path=noting, GPUS="1", **data)
    assert said(done, notes) == [
        f"python -m training.relation configs/relation/gpu/qwen3-4b-qlora.yaml {files} out=o",
        "python -m eval.relation --adapter o/adapter --pairs data/relation_test_843.jsonl --out reports/qwen3-4b-qlora",
    ]
    assert "4-bit base" in done.stdout
    notes.unlink()
    done = run("fuser.sh", "flan-t5-base", "out=f", path=noting, NOTES=str(notes))
    assert said(done, notes) == [
        "python -m training.fuser configs/fuser/gpu/flan-t5-base.yaml out=f",
        "python -m eval.fusion --adapter f/adapter --examples data/fusion_test.jsonl --out reports/fuser-flan-t5-base",
    ]


@pytest.mark.unit
@pytest.mark.parametrize(
    ("arguments", "command"),
    [
        (("vllm", "m"), "vllm serve m --runner pooling --served-model-name relation --port 8000"),
        (("tei", "m", "--dtype", "float32"), "text-embeddings-router --model-id m --port 8080 --dtype float32"),
        (("fuser", "b", "a"), "vllm serve b --enable-lora --max-lora-rank 32 --lora-modules fuser=a --port 8001"),
        (("teacher", "big"), "vllm serve big --served-model-name teacher --port 8002"),
    ],
)
def test_servers_are_started(arguments: tuple[str, ...], command: str, noting: Path, tmp_path: Path) -> None:
    notes = tmp_path / "notes"
    assert said(run("serve.sh", *arguments, path=noting, NOTES=str(notes)), notes) == [command]


@pytest.mark.unit
@pytest.mark.parametrize(
    ("command", "message"),
    [
        ("relation.sh", "give a recipe of configs/relation/gpu"),
        ("relation.sh gpt", "recipes: deberta-v3-base"),
        ("relation.sh modernbert-base", "set GPUS"),
        ("fuser.sh gpt", "recipes: flan-t5-base"),
        ("serve.sh grpc m", "give vllm, tei, fuser or teacher"),
        ("serve.sh fuser b", "give the adapter folder"),
        ("distil.sh c.jsonl m gpt", "recipes: deberta-v3-base"),
        ("distil.sh c.jsonl m modernbert-base", "vllm is not installed"),
    ],
)
def test_wrong_calls_are_refused_before_anything_runs(command: str, message: str, tmp_path: Path) -> None:
    for tool in ("bash", "dirname", "ls", "sed", "xargs", "echo"):  # and no nvidia-smi, whatever this machine has
        found = shutil.which(tool)
        assert found is not None
        (tmp_path / tool).symlink_to(found)
    done = run(*command.split(), path=tmp_path, PATH=str(tmp_path))
    assert done.returncode in (1, 2)  # 1: bash, of a missing argument
    assert message in done.stderr


@pytest.mark.slow
@pytest.mark.models
def test_teachers_are_distilled_into_an_adapter(tmp_path: Path) -> None:
    """`distil.sh` from candidates to a merged model, with a stand-in for vLLM and a tiny base."""
    pairs = toy_pairs(200, 7, "p")
    (tmp_path / "c.jsonl").write_text(
        "".join(json.dumps({"id": p.id, "old": p.old, "new": p.new, "group": p.group}) + "\n" for p in pairs)
    )
    (tmp_path / "labels.json").write_text(json.dumps({pair.id: str(pair.label) for pair in pairs}))
    write_pairs(tmp_path / "test.jsonl", toy_pairs(20, 8, "t"))
    program(tmp_path / "bin", "vllm", f"#!{sys.executable}\n{LABELS}")
    program(tmp_path / "bin", "python", f'#!/bin/bash\nexec {sys.executable} "$@"\n')
    base = save_base(tmp_path / "base", "modernbert")
    out = tmp_path / "out"
    done = run(
        "distil.sh", str(tmp_path / "c.jsonl"), "big", "modernbert-base", f"base={base}", "device=cpu",
        "precision=fp32", "max_steps=3", "epochs=1", "evals_per_epoch=1", "batch_size=8", "workers=0",
        path=tmp_path / "bin", GPUS="1", OUT=str(out),
        PAIRS=str(tmp_path / "test.jsonl"), LABELS=str(tmp_path / "labels.json"),
    )  # fmt: skip
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-2000:]
    assert len((out / "questions.jsonl").read_text().splitlines()) == 200
    card = json.loads((out / "card.json").read_text())
    assert [teacher["weight"] for teacher in card["teachers"].values()] == [2, 1]
    assert 0.0 <= json.loads((out / "report" / "report.json").read_text())["macro_f1"] <= 1.0
    assert (out / "run" / "merged" / "model.safetensors").is_file()
