"""Draws docs/results/pool-width.svg: the time of an allreduce against the number of reducers, compared with a ring.

The curves are formulas, the points are measurements of docs/results/results.json (section colocated).

usage: pool_width.py [--docs FOLDER]
"""

import argparse
import json
import sys
from pathlib import Path
from xml.sax.saxutils import escape

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "bench" / "test_network"))

from link_split import pool_time, ring_time, split_time  # noqa: E402

# The area of the plot in the image, and the time at its upper limit, in units of S/goodput.
LEFT, RIGHT, TOP, BOTTOM = 70, 700, 84, 330
MAX_TIME, TIME_STEP = 2.5, 0.5
SPLIT, POOL, RING, TEXT_COLOR, GRID = "#0b6e99", "#9065b0", "#d9730d", "#24292f", "#d8dee4"


def text(x, y, content, size=12, color=TEXT_COLOR, anchor="start", weight="normal"):
    return (f'<text x="{x:.1f}" y="{y:.1f}" font-size="{size}" fill="{color}" text-anchor="{anchor}" font-weight="{weight}" '
            f'paint-order="stroke" stroke="#ffffff" stroke-width="3">{escape(content)}</text>')


def line(points, color, stroke=2.0, dash=""):
    path = " ".join(f"{x:.1f},{y:.1f}" for x, y in points)
    return f'<polyline points="{path}" fill="none" stroke="{color}" stroke-width="{stroke}" stroke-dasharray="{dash}"/>'


class Plot:
    """Draws one case of the section colocated that was measured with the pools alone."""

    def __init__(self, case):
        self.rows = case["pools"]
        self.workers = [1.0] * case["workers"]
        self.most_reducers = max(row["reducers"] for row in self.rows)
        self.rate = case["links"]["rate"].replace("mbit", " Mb/s").replace("gbit", " Gb/s")

    def to_pixels(self, reducers, time):
        return LEFT + (RIGHT - LEFT) * reducers / self.most_reducers, BOTTOM - (BOTTOM - TOP) * time / MAX_TIME

    def curve(self, time_of, color, first=0.0):
        steps = [first + (self.most_reducers - first) * i / 200 for i in range(201)]
        return line([self.to_pixels(reducers, time_of(reducers)) for reducers in steps], color)

    def dots(self, key, color):
        shown = [(row["reducers"], row[key]) for row in self.rows if row[key] is not None and row[key] <= MAX_TIME]
        return [f'<circle cx="{x:.1f}" cy="{y:.1f}" r="4.5" fill="{color}" stroke="#ffffff"/>' for x, y in (self.to_pixels(*point) for point in shown)]

    def grid(self):
        parts = []
        for step in range(round(MAX_TIME / TIME_STEP) + 1):
            x, y = self.to_pixels(0, step * TIME_STEP)
            parts += [line([(x, y), (RIGHT, y)], GRID, 1), text(x - 8, y + 4, f"{step * TIME_STEP:.1f}", 11, anchor="end")]
        for row in self.rows:
            x, y = self.to_pixels(row["reducers"], 0)
            parts += [line([(x, y), (x, y + 5)], TEXT_COLOR, 1), text(x, y + 19, str(row["reducers"]), 11, anchor="middle")]
        return [*parts, text((LEFT + RIGHT) / 2, BOTTOM + 42, "reducers, each with the link of a worker", 12, anchor="middle")]

    def svg(self):
        ring = ring_time(self.workers)
        first_alone = len(self.workers) / MAX_TIME  # the pool alone is slower than the plot is high below this width
        gloo = next(row["rings"]["gloo-ring"] for row in self.rows)
        x, y = self.to_pixels(0, ring)
        alone = self.to_pixels(first_alone, MAX_TIME)
        return "\n".join([
            '<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 760 390" font-family="Helvetica, Arial, sans-serif">',
            '<rect width="760" height="390" rx="8" fill="#ffffff"/>',
            text(LEFT, 32, "A ring\'s speed without reducers, faster with each one", 16, weight="bold"),
            text(LEFT, 54, f"Time of an allreduce of {self.rows[0]['bytes'] >> 20} MiB over size / goodput. {len(self.workers)} workers of {self.rate}. "
                           "Lines: formula. Points: measured.", 12),
            *self.grid(),
            self.curve(lambda _: ring, RING),
            self.curve(lambda reducers: pool_time(self.workers, [reducers]), POOL, first_alone),
            self.curve(lambda reducers: split_time(self.workers, [reducers] if reducers else []), SPLIT),
            *self.dots("pool_alone", POOL), *self.dots("time", SPLIT),
            text(RIGHT, y - 8, f"ring (Gloo: {gloo:.2f})", 13, RING, "end", "bold"),
            text(alone[0] + 20, alone[1] + 16, "pool alone", 13, POOL, weight="bold"),
            text(x + 14, y + 56, "with co-located reducers", 13, SPLIT, weight="bold"),
            *(text(self.to_pixels(row["reducers"], row["time"])[0] + (8 if row["reducers"] < self.most_reducers else -8),
                   self.to_pixels(0, row["time"])[1] + (18 if row["reducers"] else -8), f"{row['time']:.2f}", 12, SPLIT,
                   "start" if row["reducers"] < self.most_reducers else "end") for row in self.rows),
            "</svg>"]) + "\n"


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--docs", type=Path, default=ROOT / "docs", help="folder that contains results/results.json")
    results = parser.parse_args().docs / "results"
    data = json.loads((results / "results.json").read_text(encoding="utf-8"))
    (results / "pool-width.svg").write_text(Plot(data["colocated"]["data"][0]).svg(), encoding="utf-8")


if __name__ == "__main__":
    main()
