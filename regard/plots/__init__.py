"""Attention made visible: figures, a page for browsers, and pictures for terminals.

Figures are matplotlib's, made without a window: save one with `figure.savefig("weights.png")`. They need
`pip install 'regard[plots]'`; the page and the pictures for terminals do not.
"""

from regard.plots.diagram import flow
from regard.plots.maps import alignment, heads, matrix, ranked
from regard.plots.page import Picture, page
from regard.plots.regression import curve
from regard.plots.terminal import draw_matrix, draw_ranked

__all__ = ["Picture", "alignment", "curve", "draw_matrix", "draw_ranked", "flow", "heads", "matrix", "page", "ranked"]
