"""From a trained fuser to an adapter folder: measures on dev, probes, card and the learning curve."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import replace
from importlib import metadata
from pathlib import Path
from typing import Any

from data.fusion import FusionExample
from eval.fusion_report import grouped, score_view
from eval.provenance import versions
from roam.adapters import AdapterCard, Probe, weights_hash, write_card
from roam.bases import ResolvedBase
from roam.fusion.model import LoadedFuser
from roam.prompts import FUSION_TEMPLATE
from roam.relations import RELATIONS
from training.fuser_config import FuserConfig
from training.fuser_data import prompt_of

PROBE_COUNT = 4


def dev_metrics(fuser: LoadedFuser, examples: Sequence[FusionExample], seed: int) -> dict[str, Any]:
    """Measures of the raw model's views (no guard): those of the fusion report, and the share that ended by EOS."""
    views = fuser.generate([prompt_of(example) for example in examples])
    scores = [score_view(example, view.text) for example, view in zip(examples, views, strict=True)]
    measured: dict[str, Any] = grouped(examples, scores, seed)
    measured.pop("by_tag")
    return measured | {"ended_rate": round(sum(view.ended for view in views) / len(views), 4)}


def pick_probes(fuser: LoadedFuser, examples: Sequence[FusionExample]) -> tuple[Probe, ...]:
    """A few dev inputs with their targets and the mean probability that the model gives a target's token.

    `old` holds the rendered input and `new` the target: the probability depends on base, adapter, tokenizer and
    template, and unlike a generated text it hardly depends on the machine.
    """
    return tuple(
        Probe(prompt, example.target, {"token": round(fuser.token_probability(prompt, example.target), 5)})
        for example in examples[:PROBE_COUNT]
        for prompt in [prompt_of(example)]
    )


def finish_fuser(
    *, folder: Path, config: FuserConfig, model: Any, tokenizer: Any, base: ResolvedBase, dev: Sequence[FusionExample],
    data_hashes: Mapping[str, str], history: Sequence[Mapping[str, Any]],
) -> tuple[Path, dict[str, Any]]:  # fmt: skip
    """Save the adapter, reload it from disk, measure what was reloaded; returns its folder and the metrics on dev."""
    adapter = folder / "adapter"
    adapter.mkdir(parents=True, exist_ok=True)
    # Embeddings are never trained here; the automatic check would ask the hub about the base.
    model.save_pretrained(str(adapter), save_embedding_layers=False)
    tokenizer.save_pretrained(str(adapter))
    card = AdapterCard(
        kind="fuser", labels=tuple(relation.value for relation in RELATIONS), base=base.name,
        base_hash=base.content_hash, template=FUSION_TEMPLATE, max_length=config.max_length,
        weights_hash=weights_hash(adapter), versions=versions() | {"trl": metadata.version("trl")},
        data_hash=dict(data_hashes),
    )  # fmt: skip
    card = replace(card, probes=pick_probes(LoadedFuser(model, tokenizer, card), dev))
    write_card(adapter, card)
    fuser = LoadedFuser.load(adapter, base=base.path)  # an adapter that can't be read back is no result
    metrics = dev_metrics(fuser, dev, config.seed)
    card = replace(card, metrics={"dev": metrics, "seed": config.seed})
    write_card(adapter, card)
    for name, value in (("metrics", metrics), ("versions", card.versions)):
        (folder / f"{name}.json").write_text(json.dumps(value, indent=2) + "\n", encoding="utf-8")
    write_fuser_card(adapter, card)
    draw_losses(history, folder / "curve.png")
    return adapter, metrics


def write_fuser_card(folder: Path, card: AdapterCard) -> None:
    """Write README.md from what `roam.json` holds."""
    dev = card.metrics["dev"]
    names = ", ".join(f"`{name}` {digest[:16]}" for name, digest in card.data_hash.items())
    rows = [
        f"| {name} | {m['examples']} | {m['exact']:.3f} | {m['chrf']:.3f} | {m['keep_rate']:.3f} | "
        f"{m['violation_rate']:.3f} |"
        for name, m in [("all", dev), *dev["by_relation"].items()]
    ]
    lines = [
        "---", f"base_model: {card.base}", "library_name: peft", "license: apache-2.0", "tags: [roam, lora]", "---", "",
        "# ROAM fuser adapter", "",
        "Proposes one read view for several timed texts about a user and the relation that joined them. LoRA weights; "
        "the base comes from its own source and is checked by content hash. A proposal can be wrong: use it behind a "
        "guard, with deterministic fusion to fall back on.", "",
        f"- Base: `{card.base}` (content hash {card.base_hash[:16]})",
        f"- Trained on: {names}; seed {card.metrics['seed']}; template `{card.template}`",
        f"- Digest: `{card.digest}`", "",
        f"## Held-out examples, raw model ({dev['ended_rate']:.3f} of the views ended by themselves)", "",
        "| relation | examples | exact | chrF | keep rate | violation rate |", "| --- | --- | --- | --- | --- | --- |",
        *rows, "",
        "## Versions", "", ", ".join(f"{name} {number}" for name, number in card.versions.items()), "",
    ]  # fmt: skip
    (folder / "README.md").write_text("\n".join(lines), encoding="utf-8")


def draw_losses(history: Sequence[Mapping[str, Any]], path: Path) -> None:
    """Training and dev loss against steps."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    figure, axes = pyplot.subplots(figsize=(7, 4))
    for key, style, label in (("loss", "-", "training loss"), ("eval_loss", "o-", "dev loss")):
        points = [(row["step"], row[key]) for row in history if key in row]
        if points:
            axes.plot(*zip(*points, strict=True), style, label=label)
    axes.set(xlabel="step", ylabel="loss a target token")
    axes.legend()
    figure.tight_layout()
    figure.savefig(path, dpi=120)
    pyplot.close(figure)
