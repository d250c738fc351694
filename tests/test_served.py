"""Managers over servers that speak vLLM's and text-embeddings-inference's schemas; the model behind them is real."""

from __future__ import annotations

import json
import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from roam import Memory
from roam.adapters import AdapterCard, parse_card, weights_hash, write_card
from roam.errors import AdapterError, InputError, LLMError
from roam.llm.settings import LLMSettings
from roam.managers import load_manager
from roam.prompts import FUSION_TEMPLATE, fusion_prompt
from roam.records import FusionRequest, Pair, TimedText
from roam.relation_model import TorchRelationModel
from roam.relations import RELATIONS, Relation
from roam.served import TeiRelationModel, VllmFuser, VllmRelationModel, served_manager
from tests.model_server import Logits, ModelServer, serving_models
from tests.stubs import HashEmbedder
from tests.tiny import toy_pairs
from tests.tiny_adapter import LABELS, save_adapter

PAIRS = [Pair(pair.old, pair.new) for pair in toy_pairs(70, 3, "x")]
LONG = Pair("Ana likes " + "very " * 90 + "strong tea", "Ana hates tea")


class Merged:
    """A merged export, and the model in it as a server would run it."""

    def __init__(self, root: Path, architecture: str) -> None:
        from training.export import export_merged

        self.adapter = save_adapter(root, architecture, max_length=60, swap_margin=0.3, temperature=1.5)
        self.folder = root / "merged"
        export_merged(self.adapter, self.folder)
        self.local = TorchRelationModel.load(self.adapter)

    def by_ids(self, ids: list[list[int]]) -> Logits:
        width = max(map(len, ids))
        rows = np.array([row + [0] * (width - len(row)) for row in ids], dtype=np.int64)
        mask = np.array([[1] * len(row) + [0] * (width - len(row)) for row in ids], dtype=np.int64)
        return self.local.network({"input_ids": rows, "attention_mask": mask})

    def by_texts(self, texts: list[list[str]]) -> Logits:
        encoder = self.local.encoder
        encodings = encoder.encode([Pair(*pair) for pair in texts])
        assert not any(encoding.overflowing for encoding in encodings)  # what is sent fits already
        return self.local.network(encoder.batch(encodings))


@pytest.fixture(scope="module")
def modernbert(tmp_path_factory: pytest.TempPathFactory) -> Merged:
    return Merged(tmp_path_factory.mktemp("modernbert"), "modernbert")


@pytest.fixture(scope="module")
def bert(tmp_path_factory: pytest.TempPathFactory) -> Merged:
    return Merged(tmp_path_factory.mktemp("bert"), "bert")


def settings(url: str, **changes: Any) -> LLMSettings:
    plain = LLMSettings(base_url=url, model="relation", transport_retries=0, concurrency=3)
    return replace(plain, **changes)


@pytest.mark.integration
@pytest.mark.parametrize("softmax", [False, True], ids=["logits", "always softmax"])
def test_vllm_answers_as_the_adapter_does_here(modernbert: Merged, softmax: bool) -> None:
    with serving_models(ModelServer(LABELS, by_ids=modernbert.by_ids, softmax=softmax)) as server:
        model = VllmRelationModel.connect(settings(f"{server.url}/v1"), modernbert.folder)
        found = model.predict_proba([*PAIRS, LONG])
    assert np.abs(found - modernbert.local.predict_proba([*PAIRS, LONG])).max() < 1e-4
    assert model.thresholds == modernbert.local.thresholds
    assert model.digest == f"{modernbert.local.digest}@vllm"
    assert all(path == "/classify" for path, _ in server.requests)
    sizes = [len(body["input"]) for _, body in server.requests]
    assert max(sizes) <= 32
    assert max(len(ids) for _, body in server.requests for ids in body["input"]) == 60  # cut as in training


@pytest.mark.integration
def test_tei_answers_as_the_adapter_does_here(bert: Merged) -> None:
    with serving_models(ModelServer(LABELS, by_texts=bert.by_texts)) as server:
        model = TeiRelationModel.connect(settings(server.url), bert.folder)
        found = model.predict_proba([*PAIRS, LONG])
    assert np.abs(found - bert.local.predict_proba([*PAIRS, LONG])).max() < 1e-4
    assert model.predict_proba([]).shape == (0, 5)


@pytest.mark.integration
def test_another_model_behind_the_url_is_refused(modernbert: Merged) -> None:
    def other(ids: list[list[int]]) -> Logits:
        return -modernbert.by_ids(ids)

    with serving_models(ModelServer(LABELS, by_ids=other)) as server, pytest.raises(AdapterError, match="probe pairs"):
        VllmRelationModel.connect(settings(server.url), modernbert.folder)
    permuted = ModelServer(LABELS[::-1], by_ids=modernbert.by_ids)
    with serving_models(permuted) as server, pytest.raises(AdapterError, match="serves another model"):
        VllmRelationModel.connect(settings(server.url), modernbert.folder)


@pytest.mark.integration
def test_folders_that_no_server_runs_are_refused(modernbert: Merged, bert: Merged, tmp_path: Path) -> None:
    with pytest.raises(AdapterError, match="--format merged"):
        VllmRelationModel.connect(settings("http://127.0.0.1:1"), modernbert.adapter)
    with pytest.raises(AdapterError, match="segment ids"):
        VllmRelationModel.connect(settings("http://127.0.0.1:1"), bert.folder)
    fuser = shutil.copytree(modernbert.folder, tmp_path / "fuser")
    write_card(fuser, replace(parse_card(fuser), kind="fuser"))
    with pytest.raises(AdapterError, match="relation adapter is needed"):
        VllmRelationModel.connect(settings("http://127.0.0.1:1"), fuser)


@pytest.mark.integration
def test_servers_that_do_not_do_it_are_named(modernbert: Merged, bert: Merged) -> None:
    with pytest.raises(LLMError, match="check that the server runs"):
        VllmRelationModel.connect(settings("http://127.0.0.1:1"), modernbert.folder)
    with serving_models(ModelServer(LABELS, by_ids=modernbert.by_ids, model="other")) as server:
        with pytest.raises(LLMError, match="'relation': NotFoundError"):
            VllmRelationModel.connect(settings(server.url), modernbert.folder)
        with pytest.raises(LLMError, match="NotFoundError"):
            TeiRelationModel.connect(settings(server.url), bert.folder)

    def three(ids: list[list[int]]) -> Logits:
        return modernbert.by_ids(ids)[:, :3]

    with serving_models(ModelServer(LABELS, by_ids=three)) as server, pytest.raises(LLMError, match="not 5 numbers"):
        VllmRelationModel.connect(settings(server.url), modernbert.folder)
    wrong = ModelServer(("a", "b", "c", "d", "e"), by_texts=bert.by_texts)
    with serving_models(wrong) as server, pytest.raises(LLMError, match="no scores of the five relations"):
        TeiRelationModel.connect(settings(server.url), bert.folder)


@pytest.mark.integration
def test_an_overloaded_server_is_asked_again(modernbert: Merged) -> None:
    with serving_models(ModelServer(LABELS, by_ids=modernbert.by_ids)) as server:
        model = VllmRelationModel.connect(settings(server.url, transport_retries=1), modernbert.folder)
        server.statuses = [503]
        assert model.predict_proba(PAIRS[:2]).shape == (2, 5)


# The fuser -----------------------------------------------------------------------------------------------------------


@pytest.fixture
def fuser_adapter(tmp_path: Path) -> Path:
    folder = tmp_path / "fuser"
    folder.mkdir()
    (folder / "adapter_model.safetensors").write_bytes(b"lora")
    card = AdapterCard(kind="fuser", labels=LABELS, base="Qwen/Qwen3-0.6B", base_hash="b", template=FUSION_TEMPLATE,
                       weights_hash=weights_hash(folder))  # fmt: skip
    write_card(folder, card)
    return folder


def request(text: str) -> FusionRequest:
    return FusionRequest((TimedText("Likes tea.", "2026-01-01"), TimedText(text, "2026-02-01")), Relation.OSN)


@pytest.mark.unit
def test_vllm_fuser_asks_with_the_prompt_of_training(fuser_adapter: Path) -> None:
    def write(prompt: str) -> tuple[str, str]:
        return (" Likes green tea.", "stop") if "green" in prompt else (" Likes and likes and", "length")

    requests = [request("Likes green tea."), request("Likes black tea.")]
    with serving_models(ModelServer(views=write, model="fuser")) as server:
        fuser = VllmFuser(settings(f"{server.url}/v1", model="fuser"), fuser_adapter)
        assert fuser.fuse(requests) == ["Likes green tea.", ""]
        assert fuser.fuse([]) == []
    ((_, body),) = server.requests
    assert body["prompt"] == [fusion_prompt(one) for one in requests]
    assert (body["temperature"], body["model"]) == (0.0, "fuser")
    assert fuser.name.endswith("on vllm")


@pytest.mark.unit
def test_vllm_fuser_refuses_another_template_and_an_unknown_module(fuser_adapter: Path) -> None:
    with serving_models(ModelServer(views=lambda prompt: ("", "stop"), model="fuser")) as server:
        fuser = VllmFuser(settings(f"{server.url}/v1", model="Qwen/Qwen3-0.6B"), fuser_adapter)
        with pytest.raises(LLMError, match="NotFoundError"):
            fuser.fuse([request("Likes green tea.")])
    card = json.loads((fuser_adapter / "roam.json").read_text())
    (fuser_adapter / "roam.json").write_text(json.dumps(card | {"template": "fusion/0"}))
    with pytest.raises(AdapterError, match="trained on template"):
        VllmFuser(settings("http://127.0.0.1:1/v1"), fuser_adapter)


# The manager ---------------------------------------------------------------------------------------------------------


@pytest.mark.integration
def test_a_store_runs_on_a_served_manager(
    modernbert: Merged, fuser_adapter: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    server = ModelServer(LABELS, by_ids=modernbert.by_ids, views=lambda prompt: ("rubbish \x00", "stop"))
    with serving_models(server):
        monkeypatch.setenv("ROAM_SERVED_RELATION", f"vllm:relation@{server.url}")
        monkeypatch.setenv("ROAM_SERVED_ADAPTER", str(modernbert.folder))
        monkeypatch.setenv("ROAM_SERVED_FUSER", f"relation@{server.url}/v1")
        monkeypatch.setenv("ROAM_SERVED_FUSER_ADAPTER", str(fuser_adapter))
        memory = Memory.open(
            str(tmp_path / "m.db"), manager=load_manager("served"), embedder=HashEmbedder(), fusion="manager"
        )
        try:
            for text in ("Ana likes tea.", "Ana likes very strong tea.", "Ana hates tea."):
                decision = memory.add(text, user="ana")
                assert decision.relation in RELATIONS
            assert all("rubbish" not in primary.text for primary in memory.primaries(user="ana"))
        finally:
            memory.close()
    assert any(path == "/classify" for path, _ in server.requests)


@pytest.mark.unit
def test_wrong_addresses_are_answered_in_words(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    for text in ("relation@http://127.0.0.1", "grpc:relation@http://127.0.0.1", "vllm:relation"):
        with pytest.raises(InputError, match=r"MODEL@URL"):
            served_manager(text, tmp_path)
    monkeypatch.delenv("ROAM_SERVED_RELATION", raising=False)
    with pytest.raises(InputError, match=r"\$ROAM_SERVED_RELATION"):
        load_manager("served")
