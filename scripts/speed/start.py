"""How long `import roam`, `roam --help` and loading the relation model take, each in a process of its own."""

from __future__ import annotations

import json
import subprocess
import sys
from typing import Any

from roam.onnx_cache import load_cached
from roam.onnx_model import PRECISIONS
from scripts.speed.plan import Plan, seconds, spread

IMPORT = "import time; s = time.perf_counter(); import roam; print(time.perf_counter() - s)"
LOAD = """
import json, sys, time
started = time.perf_counter()
from roam.managers import load_manager
from roam.records import Pair
model = load_manager(sys.argv[1], backend=sys.argv[2]).relation_model
loaded = time.perf_counter() - started
model.predict_proba([Pair("Has a dog.", "Has a beagle named Otto.")])
print(json.dumps([loaded, time.perf_counter() - started]))
"""


def run(plan: Plan) -> dict[str, Any]:
    """Seconds; loading includes all imports and the check of the files' hashes, and reads a graph that is built."""
    repeats = plan.sizes.repeats
    bare = seconds(lambda: subprocess.run([sys.executable, "-c", "pass"], check=True), repeats)
    shown = seconds(
        lambda: subprocess.run([sys.executable, "-m", "roam", "--help"], check=True, stdout=subprocess.DEVNULL), repeats
    )
    found: dict[str, Any] = {
        "python_alone": spread(bare),
        "import_roam": spread([float(_output(IMPORT)) for _ in range(repeats + 1)][1:]),
        "roam_help": spread(shown),
    }
    for precision in PRECISIONS:
        load_cached(plan.adapter, precision)
        runs = [json.loads(_output(LOAD, str(plan.adapter), precision)) for _ in range(repeats + 1)][1:]
        found[precision] = {
            "load": spread([loaded for loaded, _ in runs]),
            "load_and_first_answer": spread([answered for _, answered in runs]),
        }
    return found


def _output(script: str, *arguments: str) -> str:
    return subprocess.run([sys.executable, "-c", script, *arguments], check=True, capture_output=True, text=True).stdout
