"""Draws operations of a trace (SLUICE_TRACE) as SVG: their time parts, and below them the sampled chunks of each reducer.

docs/results/trace.svg is drawn from docs/results/trace.json, the trace of rank 0 of
    SLUICE_TRACE=trace.json sluice demo digits --workers 3 --reducers 2 --epochs 1

usage: trace_timeline.py [TRACE SVG] [--first N] [--operations N]
"""

import argparse
import json
from pathlib import Path
from xml.sax.saxutils import escape

RESULTS = Path(__file__).resolve().parents[2] / "docs/results"
WIDTH, LEFT, RIGHT, TOP, ROW, BAR = 860, 190, 830, 104, 44, 26
TEXT_COLOR, GRID = "#24292f", "#d8dee4"
# In the order in which an operation has them; a chunk begins on the wire.
PARTS = {"in_window_us": ("in the window", "#9aa4b2"), "on_wire_us": ("on the wire", "#0b6e99"),
         "waiting_us": ("waiting for the last rank", "#d9730d"), "adding_us": ("adding (estimate)", "#448361")}


def text(x, y, content, size=12, anchor="start", weight="normal", color=TEXT_COLOR):
    return f'<text x="{x:.1f}" y="{y:.1f}" font-size="{size}" text-anchor="{anchor}" font-weight="{weight}" fill="{color}">{escape(content)}</text>'


def rectangle(x, y, width, height, color, title=""):
    inside = f"<title>{escape(title)}</title>" if title else ""
    return f'<rect x="{x:.2f}" y="{y:.1f}" width="{max(width, 0.3):.2f}" height="{height}" fill="{color}">{inside}</rect>'


def describe(event):
    arguments = event["args"]
    parts = ", ".join(f"{label} {arguments[key]:.0f} us" for key, (label, _) in PARTS.items())
    last = f"; last: rank {arguments['last_rank']}" if "last_rank" in arguments else ""
    return f"{event['name']} of {arguments['bytes']} bytes, {event['dur']:.0f} us: {parts}{last}"


def bars(event, to_x, y):
    """The parts of one event side by side, as long as they are together. They do not happen in this order: chunks overlap."""
    keys = [key for key in PARTS if event["name"] == "allreduce" or key != "in_window_us"]
    at, out = event["ts"], []
    for key in keys:
        end = at + event["args"][key]
        if end > at:
            out.append(rectangle(to_x(at), y, to_x(end) - to_x(at), BAR, PARTS[key][1], describe(event)))
        at = end
    return out


def tick_step(span):
    """A round number of microseconds, of which at most 8 fit into `span`."""
    return next(factor * 10**power for power in range(9) for factor in (1, 2, 5) if span / (factor * 10**power) <= 8)


def draw(events, first, count):
    header = events[0]["args"]
    names = {event["tid"]: event["args"]["name"] for event in events if event["name"] == "thread_name"}
    timed = [event for event in events if event["name"] in ("allreduce", "chunk")]
    shown = sorted((event for event in timed if event["name"] == "allreduce"), key=lambda event: event["ts"])[first:first + count]
    begin, end = shown[0]["ts"], max(event["ts"] + event["dur"] for event in shown)
    chunks = [event for event in timed if event["name"] == "chunk" and begin <= event["ts"] and event["ts"] + event["dur"] <= end]
    tracks = sorted({event["tid"] for event in shown + chunks})
    bottom = TOP + ROW * len(tracks)

    def to_x(us):
        return LEFT + (RIGHT - LEFT) * (us - begin) / (end - begin)

    out = [f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {bottom + 56}" font-family="Helvetica, Arial, sans-serif">',
           f'<rect width="{WIDTH}" height="{bottom + 56}" rx="8" fill="#ffffff"/>',
           text(24, 34, f"Where the time of {len(shown)} operations went", 16, weight="bold"),
           text(24, 56, f"Rank {header['rank']} of {header['ranks']}; operations of {shown[0]['args']['bytes']} bytes. A sample of the chunks is traced.")]
    x = 24
    for label, color in PARTS.values():
        out += [rectangle(x, 70, 12, 12, color), text(x + 18, 80.5, label)]
        x += 40 + 6.6 * len(label)
    step = tick_step(end - begin)
    for us in range(0, int(end - begin) + 1, step):
        x = to_x(begin + us)
        out += [f'<path d="M{x:.1f} {TOP - 6}V{bottom}" stroke="{GRID}"/>', text(x, bottom + 18, f"{us / 1000:g}", 11, "middle")]
    out.append(text((LEFT + RIGHT) / 2, bottom + 40, "milliseconds", anchor="middle"))
    for row, track in enumerate(tracks):
        y = TOP + row * ROW
        name = names[track] if track < 1000 else f"chunks of reducer {track - 1000}"
        out.append(text(LEFT - 12, y + BAR / 2 + 4, name, anchor="end"))
        for event in shown + chunks:
            if event["tid"] == track:
                out += bars(event, to_x, y)
    return "\n".join([*out, "</svg>"]) + "\n"


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("trace", type=Path, nargs="?", default=RESULTS / "trace.json")
    parser.add_argument("svg", type=Path, nargs="?", default=RESULTS / "trace.svg")
    parser.add_argument("--first", type=int, default=12, help="number of the first operation")
    parser.add_argument("--operations", type=int, default=9, help="how many are drawn")
    arguments = parser.parse_args()
    events = json.loads(arguments.trace.read_text(encoding="utf-8"))
    arguments.svg.write_text(draw(events, arguments.first, arguments.operations), encoding="utf-8")


if __name__ == "__main__":
    main()
