"""Draws the plots of the report as SVG. Without matplotlib the page has no plots."""

try:
    import matplotlib
except ImportError:
    matplotlib = None

COLORS = ["#0b6e99", "#d9730d", "#448361", "#9065b0", "#c14c8a", "#787774"]


def save(figure, folder, name):
    folder.mkdir(parents=True, exist_ok=True)
    # No date and stable ids, so that the same figures always produce the same file.
    figure.savefig(folder / name, format="svg", metadata={"Date": None}, bbox_inches="tight")
    return name


def figure_of(title, x, y):
    """Returns an empty plot, or None without matplotlib."""
    if matplotlib is None:
        print("no plots: matplotlib is not installed (apt-get install python3-matplotlib)", flush=True)
        return None
    matplotlib.use("svg")
    matplotlib.rcParams.update({"svg.fonttype": "none", "svg.hashsalt": "sluice", "font.size": 9})
    from matplotlib.figure import Figure

    figure = Figure(figsize=(6.2, 3.4))
    axes = figure.subplots()
    axes.set_title(title, fontsize=10)
    axes.set_xlabel(x)
    axes.set_ylabel(y)
    axes.grid(True, linewidth=0.4, alpha=0.5)
    for side in ("top", "right"):
        axes.spines[side].set_visible(False)
    return figure


def lines(folder, name, title, x, y, series, bounds=(), log_x=False, log_y=False, ticks=None):
    """Draws `series` as lines and `bounds` as dashed lines; both are lists of (label, xs, ys). `ticks`: labels of the x axis; None: every
    measured x. Returns [(title, file)]."""
    figure = figure_of(title, x, y)
    if figure is None:
        return []
    axes = figure.axes[0]
    for (label, xs, ys), color in zip(series, COLORS):
        axes.plot(xs, ys, marker="o", markersize=3.5, linewidth=1.4, color=color, label=label)
    for (label, xs, ys), style in zip(bounds, ("--", ":", "-.")):
        axes.plot(xs, ys, linestyle=style, linewidth=1.1, color="#333333", label=label)
    if log_x:
        axes.set_xscale("log", base=2)
    if log_y:
        axes.set_yscale("log")
    else:
        axes.set_ylim(bottom=0)
    ticks = ticks or sorted({value for _, xs, _ in series for value in xs})
    axes.set_xticks(ticks, [f"{tick:g}" for tick in ticks])
    axes.minorticks_off()
    axes.legend(fontsize=8, frameon=False)
    return [(title, save(figure, folder, name))]
