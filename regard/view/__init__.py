"""Views of weights: `weights_view.py` is what users hold, `passes.py` computes weights again, `readings.py` reads."""
