"""`training.relation` under FSDP 2 between processors (gloo), for tests; arguments as that program takes them.

accelerate shares weights out among GPUs only: with `use_cpu` it runs DDP in FSDP's place, without a word. Torch's own
FSDP runs between processors too, so here accelerate's state says FSDP where its configuration does.
"""

from __future__ import annotations

import sys
from typing import Any

from accelerate import state
from accelerate.utils import DistributedType

from training import pair_trainer
from training.relation import main

_plain = state.AcceleratorState.__init__


def _init(self: Any, *arguments: Any, fsdp_plugin: Any = None, **options: Any) -> None:
    _plain(self, *arguments, fsdp_plugin=fsdp_plugin, **options)
    if fsdp_plugin is not None and self.distributed_type == DistributedType.MULTI_CPU:
        self.fsdp_plugin = fsdp_plugin
        self.distributed_type = DistributedType.FSDP
        state.PartialState._shared_state["distributed_type"] = DistributedType.FSDP


state.AcceleratorState.__init__ = _init
pair_trainer.shards_weights = lambda config: True

if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
