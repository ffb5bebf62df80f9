"""Draws docs/results/pool-width.svg: the time of an allreduce against the bandwidth of the pool, compared with a ring.

The curves are formulas, the points are measurements of docs/results/results.json (sections links and narrow).

usage: pool_width.py [--docs FOLDER]
"""

import argparse
import json
from pathlib import Path
from xml.sax.saxutils import escape

ROOT = Path(__file__).resolve().parents[2]
WORKERS, RATE, BYTES = 4, 200e6, 16 << 20
# The area of the plot in the image, and the values at its upper limits.
LEFT, RIGHT, TOP, BOTTOM = 70, 700, 84, 330
MAX_WIDTH, MAX_MS = 1.5, 3000
POOL, RING, TEXT_COLOR, GRID = "#0b6e99", "#d9730d", "#24292f", "#d8dee4"


def to_pixels(width, ms):
    return LEFT + (RIGHT - LEFT) * width / MAX_WIDTH, BOTTOM - (BOTTOM - TOP) * ms / MAX_MS


def text(x, y, content, size=12, color=TEXT_COLOR, anchor="start", weight="normal"):
    return (f'<text x="{x:.1f}" y="{y:.1f}" font-size="{size}" fill="{color}" text-anchor="{anchor}" font-weight="{weight}" '
            f'paint-order="stroke" stroke="#ffffff" stroke-width="3">{escape(content)}</text>')


def line(points, color, stroke=2.0, dash=""):
    path = " ".join(f"{x:.1f},{y:.1f}" for x, y in points)
    return f'<polyline points="{path}" fill="none" stroke="{color}" stroke-width="{stroke}" stroke-dasharray="{dash}"/>'


def dot(width, ms, color):
    x, y = to_pixels(width, ms)
    return f'<circle cx="{x:.1f}" cy="{y:.1f}" r="4.5" fill="{color}" stroke="#ffffff"/>'


def measurements(results):
    """({pool width: ms}, ms of the ring, ms that the links allow). A width of 1 is the bandwidth of all workers together."""
    links = [row for row in results["links"]["data"] if (row["workers"], row["bytes"]) == (WORKERS, BYTES)]
    narrow = [row for row in results["narrow"]["data"] if (row["rate"], row["bytes"]) == (RATE, BYTES)]
    wide = next(row for row in links if row["name"] == "sluice" and row["reducers"] == 2)
    pools = {1.0: 1e3 * wide["median"]}
    for row in narrow:
        # Each row states the time that its links allow; the ratio of the two times is the width.
        pools[round(wide["ideal_seconds"] / row["ideal_seconds"], 2)] = 1e3 * row["median"]
    ring = next(row for row in links if row["name"] == "gloo-ring")
    return pools, 1e3 * ring["median"], 1e3 * wide["ideal_seconds"]


def draw_plot(results):
    pools, ring, ideal = measurements(results)
    ring_ideal = ideal * 2 * (WORKERS - 1) / WORKERS
    break_even = ideal / ring_ideal  # the width at which pool and ring need the same time
    parts = ['<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 760 390" font-family="Helvetica, Arial, sans-serif">',
             '<rect width="760" height="390" rx="8" fill="#ffffff"/>',
             text(LEFT, 32, "A pool as wide as the workers beats a ring; a narrow pool loses", 16, weight="bold"),
             text(LEFT, 54, f"Time of an allreduce of {BYTES >> 20} MiB, {WORKERS} workers of {RATE / 1e6:.0f} Mb/s, in ms. "
                            "Lines: formula. Points: measured.", 12)]
    for ms in range(0, MAX_MS + 1, 500):
        x, y = to_pixels(0, ms)
        parts += [line([(x, y), to_pixels(MAX_WIDTH, ms)], GRID, 1), text(x - 8, y + 4, str(ms), 11, anchor="end")]
    for quarter in range(1, 7):
        x, y = to_pixels(quarter / 4, 0)
        parts += [line([(x, y), (x, y + 5)], TEXT_COLOR, 1), text(x, y + 19, f"{quarter / 4:g}", 11, anchor="middle")]
    parts.append(text((LEFT + RIGHT) / 2, BOTTOM + 42, "bandwidth of all reducers / bandwidth of all workers", 12, anchor="middle"))
    x, _ = to_pixels(break_even, 0)
    parts += [line([(x, BOTTOM), (x, TOP)], GRID, 1.5, "4 4"), text(x + 6, TOP + 12, f"even at {break_even:.2f}", 11)]
    parts.append(line([to_pixels(w / 100, ideal / min(1, w / 100)) for w in range(25, int(100 * MAX_WIDTH) + 1)], POOL))
    parts.append(line([to_pixels(0, ring_ideal), to_pixels(MAX_WIDTH, ring_ideal)], RING))
    parts += [dot(width, ms, POOL) for width, ms in sorted(pools.items())]
    parts.append(dot(1.0, ring, RING))
    for width, ms in sorted(pools.items()):
        x, y = to_pixels(width, ms)
        parts.append(text(x + 10, y + (18 if width >= 1 else -4), f"{ms:.0f} ms", 12, POOL))
    x, y = to_pixels(1.0, ring)
    parts.append(text(x + 10, y - 8, f"{ring:.0f} ms (Gloo)", 12, RING))
    parts += [text(RIGHT, to_pixels(0, ring_ideal)[1] - 8, "ring", 13, RING, "end", "bold"), text(RIGHT, to_pixels(0, ideal)[1] + 18, "reducers", 13, POOL, "end", "bold")]
    return "\n".join([*parts, "</svg>"]) + "\n"


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--docs", type=Path, default=ROOT / "docs", help="folder that contains results/results.json")
    results = parser.parse_args().docs / "results"
    data = json.loads((results / "results.json").read_text(encoding="utf-8"))
    (results / "pool-width.svg").write_text(draw_plot(data), encoding="utf-8")


if __name__ == "__main__":
    main()
