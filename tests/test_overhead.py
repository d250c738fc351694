"""The price of management: counted on scripted models, and once (slow) on a real llama.cpp server."""

from __future__ import annotations

import json
import os
import shlex
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from data.pairs import LabelledPair
from eval import overhead
from eval.llm_server import LocalServer, llama_cpp_command
from eval.overhead_cost import sample_pairs
from eval.overhead_report import ratios
from eval.paper_values import TABLE_10
from roam.errors import InputError, LLMError
from roam.relations import RELATIONS, Relation
from tests.benchmark_samples import write_lines
from tests.llm_server import Body, serving
from tests.stubs import HashEmbedder, ScriptedRelations

SERVER = """
import http.server, sys
class Handler(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        self.send_response(200); self.end_headers()
http.server.HTTPServer(("127.0.0.1", int(sys.argv[1])), Handler).serve_forever()
"""


@pytest.fixture
def files(tmp_path: Path) -> Mapping[str, Path]:
    """Two episodes of three facts each, and labelled pairs."""

    def memory(identifier: str, text: str, role: str) -> dict[str, Any]:
        return {
            "id": identifier,
            "text": text,
            "time": "2026-01-05",
            "role": role,
            "ctype": "I" if role == "confounder" else None,
        }

    episodes = [
        {"question_id": f"q{n}", "question_type": "single", "question": "Which pie?", "answer": "apple",
         "memories": [memory("g", f"The user likes apple pie {n}.", "gold"),
                      memory("c1", f"The user likes pear pie {n}.", "confounder"),
                      memory("c2", f"The user likes plum pie {n}.", "confounder")]}
        for n in range(2)
    ]  # fmt: skip
    pairs = [{"id": f"{relation}{n}", "old": f"o {relation} {n}", "new": f"n {relation} {n}", "label": str(relation)}
             for relation in RELATIONS for n in range(3)]  # fmt: skip
    return {
        "data": write_lines(tmp_path / "e.jsonl", *episodes), "pairs": write_lines(tmp_path / "p.jsonl", *pairs),
        "out": tmp_path / "out",
    }  # fmt: skip


@pytest.fixture
def scripted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("roam.embedders.load_embedder", lambda name: HashEmbedder())
    monkeypatch.setattr("eval.methods._load", lambda name: ScriptedRelations({}))


def arguments(files: Mapping[str, Path], *more: str) -> list[str]:
    return ["--data", str(files["data"]), "--pairs", str(files["pairs"]), "--out", str(files["out"]),
            "--confounders", "2", "--per-relation", "2", *more]  # fmt: skip


def answer(body: Body) -> str:
    rules = body["messages"][0]["content"]
    if '"relation"' in rules:
        return '{"relation": "IND"}'
    return '{"memory": []}' if "one of four operations" in rules else "merged"


@pytest.mark.integration
def test_calls_and_tokens_of_each_manager(
    scripted: None, files: Mapping[str, Path], capsys: pytest.CaptureFixture[str]
) -> None:
    with serving(answer, cached=1) as stub:
        assert overhead.main(arguments(files, "--llm", stub.endpoint)) == 0
        assert len(stub.requests) == 2 * (3 + 3 + 2) + 10  # prompted, mem0 and evermemos twice; ten gold pairs
    report = json.loads((files["out"] / "report.json").read_text(encoding="utf-8"))
    managers = report["managers"]
    assert list(managers) == ["append", "roam", "roam, batched", "prompted", "mem0", "evermemos"]
    assert {name: entry["llm_calls"] for name, entry in managers.items()} == {
        "append": 0, "roam": 0, "roam, batched": 0, "prompted": 3, "mem0": 3, "evermemos": 2,
    }  # fmt: skip
    assert (managers["roam"]["forward_passes"], managers["roam, batched"]["forward_passes"]) == (2, 1)
    assert managers["prompted"]["forward_passes"] == managers["append"]["forward_passes"] == 0
    prompted = managers["prompted"]
    assert prompted["input_tokens"] > prompted["input_after_reuse"] > 0
    assert 0.8 < prompted["shared_share"] < 1
    assert prompted["cached_tokens"] == 3
    assert prompted["output_tokens"] == 6
    assert managers["roam"]["shared_share"] is None
    agreed = report["agreement"]["models"]
    assert set(agreed) == {"roam", "prompted"}
    assert agreed["prompted"]["accuracy"] == pytest.approx(0.2)
    assert agreed["prompted"]["by_relation"]["IND"] == 1.0
    assert report["output_modes"] == {"prompted": "json_schema", "mem0": "json_schema"}
    page = (files["out"] / "report.md").read_text(encoding="utf-8")
    assert page.strip() in capsys.readouterr().out
    assert f"{TABLE_10['ROAM']['llm_calls']:.1f}" in page
    assert "times the seconds of roam" in page
    assert set(ratios(report)) == {"seconds of roam", "seconds of roam, batched"}  # the server is not ours
    assert managers["prompted"]["cpu_seconds"] is None
    assert managers["roam"]["cpu_seconds"] > 0
    assert (files["out"] / "overhead.png").read_bytes().startswith(b"\x89PNG")
    rows = [json.loads(line) for line in (files["out"] / "rows.jsonl").read_text(encoding="utf-8").splitlines()]
    assert len(rows) == 2 * len(managers)


@pytest.mark.integration
def test_without_an_llm_the_rest_is_measured_and_the_page_says_what_is_missing(
    scripted: None, files: Mapping[str, Path], capsys: pytest.CaptureFixture[str]
) -> None:
    assert overhead.main(arguments(files, "--episodes", "1")) == 0
    report = json.loads((files["out"] / "report.json").read_text(encoding="utf-8"))
    assert list(report["not_measured"]) == ["prompted", "mem0", "evermemos"]
    assert list(report["managers"]) == ["append", "roam", "roam, batched"]
    assert "Not measured: mem0; no LLM was given." in capsys.readouterr().out
    assert overhead.main(arguments(files, "--managers", "roam,mem0")) == 2
    assert "--gguf" in capsys.readouterr().err


@pytest.mark.unit
@pytest.mark.parametrize("more", [["--episodes", "0"], ["--llm", "m@http://h/v1", "--gguf", "x.gguf"]])
def test_bad_arguments(files: Mapping[str, Path], more: list[str]) -> None:
    with pytest.raises(SystemExit) as stopped:
        overhead.main(arguments(files, *more))
    assert stopped.value.code == 2


@pytest.mark.integration
def test_too_few_confounders(scripted: None, files: Mapping[str, Path], capsys: pytest.CaptureFixture[str]) -> None:
    assert overhead.main([*arguments(files), "--confounders", "4"]) == 2
    assert "2 confounders" in capsys.readouterr().err


@pytest.mark.unit
def test_the_sample_of_pairs_is_even() -> None:
    pairs = [LabelledPair(f"{n}", f"o{n}", f"n{n}", RELATIONS[n % 5], "g") for n in range(40)]
    sample = sample_pairs(pairs, 2)
    assert sample == pairs[:10]
    assert sample_pairs(pairs[:1], 2) == pairs[:1]
    assert pairs[0].label is Relation.IND


# The server -------------------------------------------------------------------------------------------------------


def python_command(code: str) -> str:
    return f"{shlex.join([sys.executable, '-c', code])} {{port}}"


@pytest.mark.integration
def test_a_server_is_started_and_ended(tmp_path: Path) -> None:
    with LocalServer(python_command(SERVER), tmp_path / "log") as server:
        process = server._process
        assert process is not None
        assert process.poll() is None
        assert server.cpu_seconds() >= 0
        assert server.url == f"http://127.0.0.1:{server.port}/v1"
    assert process.poll() is not None


@pytest.mark.integration
@pytest.mark.parametrize(
    ("code", "said"),
    [
        ("print('no such model'); raise SystemExit(3)", "code 3: no such model"),
        ("import time; time.sleep(60)", "within"),
    ],
)
def test_a_server_that_never_serves(tmp_path: Path, code: str, said: str) -> None:
    server = LocalServer(python_command(code), tmp_path / "log", start_seconds=5.0 if "exit" in code.lower() else 0.5)
    with pytest.raises(LLMError, match=said), server:
        raise AssertionError("it never serves")
    assert server._process is not None
    assert server._process.poll() is not None


@pytest.mark.unit
def test_commands_that_can_start_nothing(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="port"):
        LocalServer("llama-server", tmp_path / "log")
    with pytest.raises(InputError, match="no such file"):
        llama_cpp_command(sys.executable, tmp_path / "none.gguf", 1)
    with pytest.raises(LLMError, match="cannot start"), LocalServer("/no/such/program {port}", tmp_path / "log"):
        raise AssertionError("it never starts")


@pytest.mark.slow
def test_a_real_llama_cpp_server(files: Mapping[str, Path], scripted: None) -> None:
    gguf, python = os.environ.get("ROAM_TEST_GGUF"), os.environ.get("ROAM_TEST_LLAMA_PYTHON", sys.executable)
    if not gguf:
        pytest.skip("set ROAM_TEST_GGUF to a GGUF file, and ROAM_TEST_LLAMA_PYTHON to a Python with llama-cpp-python")
    more = ["--gguf", gguf, "--server-python", python, "--episodes", "1", "--per-relation", "1"]
    assert overhead.main(arguments(files, *more)) == 0
    report = json.loads((files["out"] / "report.json").read_text(encoding="utf-8"))
    prompted = report["managers"]["prompted"]
    assert prompted["llm_calls"] >= 3
    assert prompted["given_up"] == 0  # its answers are held to the schema
    assert prompted["output_tokens"] > 0
    assert report["output_modes"]["prompted"] in ("json_schema", "object_schema")
