"""The relation model in a server: vLLM's /classify and text-embeddings-inference's /predict.

Both run the folder that `python -m training.export ADAPTER --format merged` makes. Calibration, thresholds, and the
second look at doubtful pairs stay here; the server returns logits. What it answers to the adapter's probes is checked
when it is connected, so that a server of another model is refused.
"""

from __future__ import annotations

import json
from abc import abstractmethod
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Self

import numpy as np
from numpy.typing import NDArray

from roam.adapters import AdapterCard, parse_card
from roam.errors import AdapterError
from roam.llm.settings import LLMSettings
from roam.pair_encoding import PairEncoder
from roam.records import Pair
from roam.relation_model import CalibratedClassifier
from roam.relations import RELATIONS
from roam.served.endpoint import Endpoint, malformed

if TYPE_CHECKING:
    from tokenizers import Encoding

REQUEST_PAIRS: Final = 32
"""Pairs a request; text-embeddings-inference takes no more unless --max-client-batch-size says so."""
LEAST: Final = 1e-12  # of a probability, before its logarithm


class ServedRelationModel(CalibratedClassifier):
    """A relation model whose network runs elsewhere."""

    kind: str
    probe_tolerance = 0.05
    """Wider than on this machine: servers compute in bf16 or fp16."""

    def __init__(self, endpoint: Endpoint, encoder: PairEncoder, card: AdapterCard) -> None:
        super().__init__(card, f"{card.digest}@{self.kind}")
        self.endpoint, self.encoder = endpoint, encoder

    @classmethod
    def connect(cls, settings: LLMSettings, folder: str | Path) -> Self:
        """Connect to the server that runs the merged model in `folder` and check what it answers to the probes.

        Raises `AdapterError` (no such folder, another model) or `LLMError` (nobody there, no such task).
        """
        folder = Path(folder)
        card, config = parse_card(folder), _config(folder)
        if card.kind != "relation":
            raise AdapterError(f"{folder} is a {card.kind!r} adapter; a relation adapter is needed here")
        cls.check(config, folder)
        model = cls(Endpoint(settings), _encoder(folder, card.max_length), card)
        model.verify_probes(f"{settings.base_url}, model {settings.model!r}")
        return model

    @classmethod
    def check(cls, config: dict[str, Any], folder: Path) -> None:
        """Raise `AdapterError` for a model that this kind of server can't run as it was trained."""

    @abstractmethod
    def ask(self, pairs: Sequence[Pair], encodings: Sequence[Encoding]) -> NDArray[np.float32]:
        """Logits of the pairs of one request, shape (len(pairs), 5), columns in the order of the card's labels."""

    def _forward(self, pairs: Sequence[Pair]) -> NDArray[np.float32]:
        encoded = self.encoder.encode(pairs)
        starts = range(0, len(pairs), REQUEST_PAIRS)
        found = self.endpoint.each(
            starts, lambda at: self.ask(pairs[at : at + REQUEST_PAIRS], encoded[at : at + REQUEST_PAIRS])
        )
        rows = np.concatenate(found) if found else np.zeros((0, len(RELATIONS)), dtype=np.float32)
        return rows[:, self._columns]

    def logits(self, rows: Any, count: int) -> NDArray[np.float32]:
        """The server's numbers as logits, shape (count, 5); raises `LLMError` for any other shape.

        Some versions apply softmax whatever they are told. The logarithm undoes it up to a constant a row, which
        changes nothing that follows.
        """
        try:
            found = np.asarray(rows, dtype=np.float32)
        except (TypeError, ValueError):
            found = np.zeros(0, dtype=np.float32)
        if found.shape != (count, len(RELATIONS)) or not np.isfinite(found).all():
            raise malformed(self.endpoint.settings, f"{len(rows)} rows that are not {len(RELATIONS)} numbers each")
        if (found >= 0).all() and np.allclose(found.sum(axis=1), 1, atol=1e-2):
            found = np.log(np.maximum(found, LEAST))
        return found


class VllmRelationModel(ServedRelationModel):
    """vLLM's classification endpoint, which gets token ids: a pair is laid out here as in training."""

    kind = "vllm"

    @classmethod
    def check(cls, config: dict[str, Any], folder: Path) -> None:
        """Token ids alone say nothing of segments, which BERT was trained with."""
        if int(config.get("type_vocab_size") or 0) > 1:
            raise AdapterError(
                f"{folder} tells OLD and NEW apart by segment ids, and vLLM's /classify takes none: serve it with "
                "text-embeddings-inference (tei:MODEL@URL), or train on ModernBERT, DeBERTa-v3 or Qwen3"
            )

    def ask(self, pairs: Sequence[Pair], encodings: Sequence[Encoding]) -> NDArray[np.float32]:
        """One POST /classify."""
        settings = self.endpoint.settings
        body = {"model": settings.model, "input": [encoding.ids for encoding in encodings], "use_activation": False}
        reply = self.endpoint.post("/classify", body)
        try:
            data = sorted(reply["data"], key=lambda row: row["index"])
            labels, rows = [row.get("label") for row in data], [row["probs"] for row in data]
        except (TypeError, KeyError, AttributeError) as error:
            raise malformed(settings, f"no classification ({type(error).__name__}: {error})") from error
        found = self.logits(rows, len(pairs))
        for label, row in zip(labels, found, strict=True):
            if label is not None and label != self.card.labels[int(row.argmax())]:
                raise AdapterError(
                    f"{settings.base_url} calls column {int(row.argmax())} {label!r}, the adapter "
                    f"{self.card.labels[int(row.argmax())]!r}: it serves another model than the folder given"
                )
        return found


class TeiRelationModel(ServedRelationModel):
    """text-embeddings-inference, which gets texts and tokenises pairs itself; texts too long are cut here, as in
    training."""

    kind = "tei"

    def ask(self, pairs: Sequence[Pair], encodings: Sequence[Encoding]) -> NDArray[np.float32]:
        """One POST /predict."""
        settings = self.endpoint.settings
        texts = [cut(pair, encoding) for pair, encoding in zip(pairs, encodings, strict=True)]
        reply = self.endpoint.post("/predict", {"inputs": texts, "raw_scores": True, "truncate": True})
        try:
            scored = [{entry["label"]: entry["score"] for entry in row} for row in reply]
            rows = [[row[label] for label in self.card.labels] for row in scored]
        except (TypeError, KeyError) as error:
            raise malformed(settings, f"no scores of the five relations ({type(error).__name__}: {error})") from error
        return self.logits(rows, len(pairs))


def cut(pair: Pair, encoding: Encoding) -> list[str]:
    """[OLD, NEW], each as far as the encoder's truncation left it."""
    if not encoding.overflowing:
        return [pair.old, pair.new]
    ends = [0, 0]
    for segment, (_, end) in zip(encoding.sequence_ids, encoding.offsets, strict=True):
        if segment is not None:
            ends[segment] = max(ends[segment], end)
    return [pair.old[: ends[0]], pair.new[: ends[1]]]


def _config(folder: Path) -> dict[str, Any]:
    """The model's config.json, which only a merged export has."""
    path = folder / "config.json"
    if not path.is_file():
        raise AdapterError(
            f"{folder} has no config.json: servers run merged models; make one with "
            "`python -m training.export ADAPTER --format merged --out DIR` and give DIR"
        )
    found: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
    return found


def _encoder(folder: Path, max_length: int) -> PairEncoder:
    from tokenizers import Tokenizer

    tokenizer = Tokenizer.from_file(str(folder / "tokenizer.json"))
    if not tokenizer.num_special_tokens_to_add(is_pair=True):
        raise AdapterError(f"{folder}: its tokenizer puts nothing between OLD and NEW; export the adapter anew")
    return PairEncoder(tokenizer, max_length=max_length, pad_id=0, inputs=("input_ids",))  # requests are not padded
