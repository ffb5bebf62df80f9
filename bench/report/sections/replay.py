"""Section: the gradients of one training step of BERT-large in the buckets of PyTorch's DDP."""

import subprocess

from run import markdown_table, rate_label, spread

TITLE = "A step of BERT-large"
RATE = 200e6
RINGS = ["gloo-ring", "openmpi-ring"]
REDUCERS = 2
# Scale 0 leaves out the time of the computation, so the communication is measured alone.
MODEL = ["bert-large", "--bucketing", "ddp", "--compute-scale", "0"]


def measure(run):
    workers = run.pick(8, 2)
    model = run.pick(MODEL, ["resnet-50", *MODEL[1:]])
    trace = run.folder / "trace"
    listing = subprocess.run([run.program, "bench", "replay", "--model", *model, "--print-trace"], capture_output=True, text=True, timeout=60, check=True)
    trace.write_text(listing.stdout, encoding="utf-8")
    programs = {"sluice": run.sluice(REDUCERS), **{name: run.peer(name) for name in RINGS}}
    with run.network(workers, REDUCERS, RATE, RATE * workers / REDUCERS) as network:
        found = run.interleave(programs, lambda name: [programs[name].replay(network, workers, trace, 1, 0, run.folder)])
    return {"workers": workers, "bytes": found["sluice"][0]["bytes"], "buckets": sum(1 for line in listing.stdout.splitlines() if not line.startswith("#")),
            "rows": [{"name": name, "wrong": sum(r["wrong"] for r in results), "cpu_seconds_per_gb": spread([r["cpu_seconds_per_gb"] for r in results])["median"],
                      **spread([t for r in results for t in r["operation_seconds"]])} for name, results in found.items()]}


def text(data):
    return (f"{data['bytes'] / 1e9:.2f} GB of f32 gradients in {data['buckets']} buckets, {data['workers']} workers of {rate_label(RATE)}, {REDUCERS} reducers with the "
            "bandwidth of the workers. All buckets are ready at the start. Only Sluice keeps several in flight.")


def table(data):
    best = min(r["median"] for r in data["rows"] if r["name"] != "sluice")
    return markdown_table(["", "s", "greatest", "steps", "best ring / this", "CPU s/GB", "wrong"],
                          [[r["name"], f"{r['median']:.1f}", f"{r['p99']:.1f}", r["count"], f"{best / r['median']:.2f}" if r["name"] == "sluice" else "",
                            f"{r['cpu_seconds_per_gb']:.2f}", r["wrong"]] for r in data["rows"]])
