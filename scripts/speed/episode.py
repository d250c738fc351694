"""An episode's management by prompts and by the classifier: the cost report of `python -m eval.overhead`."""

from __future__ import annotations

from typing import Any

from eval.overhead import parse_args
from eval.overhead import run as overhead
from scripts.speed.plan import Plan


def run(plan: Plan) -> dict[str, Any] | None:
    """Seconds an episode of each manager; None without --gguf."""
    if plan.gguf is None:
        return None
    arguments = ["--gguf", str(plan.gguf), "--managers", "roam,prompted", "--episodes", str(plan.sizes.episodes),
                 "--per-relation", "1", "--threads", "2", "--out", str(plan.scratch / "overhead")]  # fmt: skip
    if plan.server_python:
        arguments += ["--server-python", plan.server_python]
    report = overhead(parse_args(arguments))
    kept = ("seconds", "cpu_seconds", "llm_calls", "forward_passes", "pairs", "facts")
    return {
        "llm": plan.gguf.stem,
        "episodes": report["episodes"],
        "managers": {
            name: {key: costs[key] for key in kept} for name, costs in report["managers"].items()
        },
    }  # fmt: skip
