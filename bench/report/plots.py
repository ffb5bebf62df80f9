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


def is_available():
    if matplotlib is None:
        print("no plots: matplotlib is not installed (apt-get install python3-matplotlib)", flush=True)
    return matplotlib is not None


def figure_of(title, x, y):
    """Returns an empty plot, or None without matplotlib."""
    if not is_available():
        return None
    figure = empty_figure((6.2, 3.4))
    set_up(figure.subplots(), title, x, y)
    return figure


def empty_figure(size):
    matplotlib.use("svg")
    matplotlib.rcParams.update({"svg.fonttype": "none", "svg.hashsalt": "sluice", "font.size": 9})
    from matplotlib.figure import Figure

    return Figure(figsize=size)


def set_up(axes, title, x, y):
    axes.set_title(title, fontsize=10)
    axes.set_xlabel(x)
    axes.set_ylabel(y)
    axes.grid(True, linewidth=0.4, alpha=0.5)
    for side in ("top", "right"):
        axes.spines[side].set_visible(False)


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


def bars(folder, name, title, x, groups, reference="bound"):
    """Draws a bar for each measured value, and a line across it at its reference. `groups`: (label, [(label, value, reference)]); a group has a color.
    Returns [(title, file)]."""
    if not is_available():
        return []
    count = sum(len(rows) for _, rows in groups)
    largest = max(max(row[1:]) for _, rows in groups for row in rows)
    figure = empty_figure((6.2, 0.5 + 0.24 * (count + len(groups))))
    axes = figure.subplots()
    set_up(axes, title, x, "")
    axes.grid(False, axis="y")
    place, places, labels = 0, [], []
    for (group, rows), color in zip(groups, COLORS):
        for index, (label, value, expected) in enumerate(rows):
            axes.barh(place, value, height=0.72, color=color, label=group if index == 0 else None)
            axes.plot([expected, expected], [place - 0.45, place + 0.45], color="#111111", linewidth=1.6, label=reference if place == 0 else None)
            axes.text(max(value, expected) + 0.01 * largest, place, f"{value:.2f}", va="center", fontsize=7.5)
            places.append(place)
            labels.append(label)
            place += 1
        place += 0.5
    axes.set_yticks(places, labels, fontsize=8)
    axes.invert_yaxis()
    axes.legend(fontsize=8, frameon=False)
    return [(title, save(figure, folder, name))]


def panels(folder, name, title, x, rows):
    """Draws rows of plots with curves that have a band. A plot is (title, xs, series, noise): a series is (label, [(mean, deviation)]), noise None or
    deviations around 0, which are drawn in gray. A label has the same color in all plots. Returns [(title, file)]."""
    if not is_available():
        return []
    figure = empty_figure((6.2 * len(rows[0]) / 1.5, 2.9 * len(rows)))
    color_of = dict(zip(dict.fromkeys(label for row in rows for plot in row for label, _ in plot[2]), COLORS))
    for axes, (plot_title, xs, series, noise) in zip(figure.subplots(len(rows), len(rows[0])).flat, [plot for row in rows for plot in row]):
        set_up(axes, plot_title, x, "")
        if noise:
            axes.fill_between(xs, [-deviation for deviation in noise], noise, color="#cccccc", linewidth=0, label="f32: deviation")
        for label, points in series:
            axes.plot(xs, [mean for mean, _ in points], linewidth=1.1, color=color_of[label], label=label)
            axes.fill_between(xs, [mean - deviation for mean, deviation in points], [mean + deviation for mean, deviation in points], color=color_of[label],
                              alpha=0.12, linewidth=0)
    figure.suptitle(title, fontsize=10)
    found = {label: handle for axes in figure.axes for handle, label in zip(*axes.get_legend_handles_labels())}
    figure.tight_layout(rect=(0, 0.07, 1, 1))
    figure.legend(found.values(), found.keys(), fontsize=8, frameon=False, loc="lower center", ncol=4)
    return [(title, save(figure, folder, name))]
