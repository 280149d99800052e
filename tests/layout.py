"""What must hold for every picture: nothing is cut off, no legend covers a curve, names are drawn as written."""

from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure


def saved(draw, file, monkeypatch):
    """Return a figure as it was saved."""
    kept = []
    save = Figure.savefig
    monkeypatch.setattr(Figure, "savefig", lambda self, *a, **k: (kept.append(self), save(self, *a, **k)))
    draw(file)
    assert file.read_bytes()[1:4] == b"PNG"
    FigureCanvasAgg(kept[0]).draw()  # at its own resolution, so that extents can be compared
    return kept[0]


def check(figure):
    """Raise unless it is so."""
    legends = [*figure.legends, *(axes.get_legend() for axes in figure.axes if axes.get_legend())]
    assert legends
    texts = [figure._suptitle, *(text for legend in legends for text in legend.get_texts())]
    whole = figure.bbox.expanded(1.001, 1.001)
    for text in texts:
        extent = text.get_window_extent()
        assert whole.x0 <= extent.x0 < extent.x1 <= whole.x1, text.get_text()
        assert whole.y0 <= extent.y0 < extent.y1 <= whole.y1, text.get_text()
    for axes in figure.axes:
        for drawn in (*legends, figure._suptitle):
            assert not drawn.get_window_extent().overlaps(axes.bbox)
        assert axes.bbox.height > 0.25 * figure.bbox.height
        assert axes.bbox.width > 0.45 * figure.bbox.width
    for text in texts:
        assert not text._preprocess_math(text.get_text())[1], "a name is taken for a formula"
