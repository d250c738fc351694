"""Base weights: the content hash, where they are looked for, and what is said when they are missing or wrong."""

from __future__ import annotations

import zipfile
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from safetensors.numpy import save_file

from roam import bases
from roam.bases import cache_dir, content_hash, ensure_base, find_spec, resolve_base
from roam.errors import BaseModelError
from roam.known_bases import BaseSpec

TENSORS = {"b": np.arange(6, dtype=np.float32).reshape(2, 3), "a": np.ones(4, dtype=np.float32)}


@pytest.fixture(autouse=True)
def _own_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ROAM_CACHE", str(tmp_path / "cache"))


def folder_with(path: Path, tensors: dict[str, np.ndarray], metadata: dict[str, str] | None = None) -> Path:
    path.mkdir()
    save_file(tensors, path / "model.safetensors", metadata=metadata)
    return path


def test_content_hash_is_of_the_tensors_alone(tmp_path: Path) -> None:
    plain = folder_with(tmp_path / "a", TENSORS)
    noted = folder_with(tmp_path / "b", dict(reversed(TENSORS.items())), metadata={"format": "pt"})
    other = folder_with(tmp_path / "c", {**TENSORS, "a": np.zeros(4, dtype=np.float32)})
    reshaped = folder_with(tmp_path / "d", {**TENSORS, "b": TENSORS["b"].reshape(3, 2)})
    assert content_hash(plain) == content_hash(noted)
    assert len({content_hash(path) for path in (plain, other, reshaped)}) == 3


def test_content_hash_is_computed_again_when_the_file_changes(tmp_path: Path) -> None:
    folder = folder_with(tmp_path / "a", TENSORS)
    first = content_hash(folder)
    save_file({"a": np.zeros(40, dtype=np.float32)}, folder / "model.safetensors")
    assert content_hash(folder) != first


def test_pickles_and_cut_files_are_refused(tmp_path: Path) -> None:
    (tmp_path / "pickle").mkdir()
    (tmp_path / "pickle" / "pytorch_model.bin").write_bytes(b"x")
    with pytest.raises(BaseModelError, match="no pickles"):
        resolve_base(tmp_path / "pickle")
    cut = folder_with(tmp_path / "cut", TENSORS)
    data = (cut / "model.safetensors").read_bytes()
    (cut / "model.safetensors").write_bytes(data[:-8])
    with pytest.raises(BaseModelError, match="cut short"):
        resolve_base(cut)


def test_other_weights_are_named(tmp_path: Path) -> None:
    folder = folder_with(tmp_path / "a", TENSORS)
    right = content_hash(folder)
    assert resolve_base(folder, expected_hash=right).content_hash == right
    with pytest.raises(BaseModelError, match=f"{right[:16]}, expected {'0' * 16}"):
        resolve_base(folder, expected_hash="0" * 64)


def test_missing_bases_say_what_to_do(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bases, "_installed", lambda spec: None)
    with pytest.raises(BaseModelError, match="roam pull all-mpnet-base-v2"):
        resolve_base("all-mpnet-base-v2")
    with pytest.raises(BaseModelError, match="give a folder or go online"):
        resolve_base("nobody/nothing")
    with pytest.raises(BaseModelError, match="unknown base 'gpt'"):
        ensure_base("gpt")


def test_bases_are_found_by_hub_id_and_short_name_in_any_case() -> None:
    assert find_spec("ALL-minilm-l6-v2") is find_spec("sentence-transformers/all-MiniLM-L6-v2") is not None
    assert find_spec("all-MiniLM") is None
    assert all(len(spec.content_hash) == 64 for spec in bases.KNOWN)


def test_base_in_pieces_is_assembled_once(tmp_path: Path) -> None:
    weights = folder_with(tmp_path / "weights", TENSORS)
    whole = tmp_path / "whole.zip"
    with zipfile.ZipFile(whole, "w") as archive:
        archive.write(weights / "model.safetensors", "inner/model.safetensors")
        archive.writestr("inner/config.json", "{}")
    data = whole.read_bytes()
    pieces = []
    for number in range(3):
        piece = tmp_path / f"m.zip.00{number + 1}"
        piece.write_bytes(data[number * len(data) // 3 : (number + 1) * len(data) // 3])
        pieces.append(piece)
    spec = BaseSpec("m", "x/m", ("m-1==1", "m-2==1", "m-3==1"), content_hash(weights), "MIT", 1.0, zipped=True)
    assembled = bases._assemble(spec, reversed(pieces))
    assert assembled == cache_dir() / "bases" / "m"
    assert content_hash(assembled) == spec.content_hash
    assert bases._assemble(spec, pieces[:2]) is None
    assert bases._installed(spec) == assembled


def test_offline_environment_forbids_downloads(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("HF_HUB_OFFLINE", raising=False)
    assert not bases.offline()
    monkeypatch.setenv("ROAM_OFFLINE", "1")
    assert bases.offline()


GGUF_SPEC = BaseSpec("packed", None, ("packed-model==1",), "", "MIT", 1.0, gguf=True)


def test_a_gguf_base_is_dequantised_once_into_the_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = tmp_path / "packed.Q4_1.gguf"
    file.write_bytes(b"GGUF")
    converted: list[Path] = []

    def convert(source: Path, target: Path) -> None:
        converted.append(source)
        save_file(TENSORS, target / "model.safetensors")

    monkeypatch.setattr("roam.gguf_weights.convert_gguf", convert)
    assert bases._assemble(GGUF_SPEC, [tmp_path / "__init__.py"]) is None
    made = bases._assemble(GGUF_SPEC, [tmp_path / "__init__.py", file])
    assert made == cache_dir() / "bases" / "packed"
    assert bases._installed(GGUF_SPEC) == made
    assert converted == [file]
    right = replace(GGUF_SPEC, content_hash=content_hash(made))
    monkeypatch.setattr(bases, "KNOWN", (right,))
    assert resolve_base("Packed").name == "packed"
    monkeypatch.setattr(bases, "KNOWN", (replace(right, content_hash="0" * 64),))
    with pytest.raises(BaseModelError, match=f"expected {'0' * 16}"):
        resolve_base("packed")


def test_a_conversion_that_fails_leaves_no_base_behind(tmp_path: Path) -> None:
    file = tmp_path / "packed.gguf"
    file.write_bytes(b"no model")
    with pytest.raises(BaseModelError, match=r"pip install gguf|no readable GGUF file"):
        bases._assemble(GGUF_SPEC, [file])
    assert not (cache_dir() / "bases" / "packed").exists()
    assert list((cache_dir() / "bases").iterdir()) == []


def test_dequantised_weights_are_a_base_of_their_own() -> None:
    spec = find_spec("smollm2-135m-instruct-q4_1")
    assert spec is not None
    assert spec.public_name == spec.name
    assert find_spec("HuggingFaceTB/SmolLM2-135M-Instruct") is None
    with pytest.raises(BaseModelError, match="or use the base SmolLM2-135M-Instruct-Q4_1"):
        resolve_base("HuggingFaceTB/SmolLM2-135M-Instruct", download=False)
