"""The three papers' figures and experiments, drawn by `benchmarks/draw.py`."""
