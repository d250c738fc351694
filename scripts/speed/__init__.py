"""Parts of `scripts/bench_speed.py`."""
