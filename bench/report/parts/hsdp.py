"""Part of the section torch_backend: HSDP with float32 gradients as bf16 on the wire, beside gloo: the time between hosts, and the losses of a training."""

import hsdp
from run import CannotRun, markdown_table
from sections import torch_backend
from sluice_run import SluiceFailed

TITLE = "HSDP with 16 bits between hosts"
CASES = ["hsdp step, bf16", "hsdp step without copies"]
OPTIONS = ["--workers", "8", "--ranks-per-host", "1", "--reducers", "8", "--rate", "100mbit", "--bytes", "32M"]
BRIEF = ["--workers", "2", "--reducers", "2", "--bytes", "1M"]


def measure(run):
    rows = torch_backend.rows(run, *OPTIONS, *run.pick([], BRIEF), "--cases", ";".join(CASES), "--rounds", str(run.rounds), "--repetitions", run.pick("3", "1"))
    try:
        return {"rows": rows, "training": hsdp.measure(hsdp.parse(["--sluice", str(run.program), *run.pick([], ["--brief", "--seeds", "2"])]))}
    except SluiceFailed as error:
        raise CannotRun(str(error)) from error


def text(data):
    s, training = hsdp.summary(data["training"]), data["training"]
    return (f"`bench/test_network/torch_backend.py {' '.join(OPTIONS)} --cases \"{';'.join(CASES)}\"`: a copy of a network on each of 8 hosts. gloo averages the gradients in f32, Sluice "
            "adds them in f32 and sends bf16. \"Between hosts\" is the time of a step minus that of a step without copies, in which each host trains alone.\n\n"
            f"`{hsdp.COMMAND}`: {training['copies']} copies with {training['shards']} ranks each, {training['tasks'][hsdp.TASK]['description']}, "
            f"{training['tasks'][hsdp.TASK]['steps']} steps. The loss on held-out data at the end is {s['f32']:.4f} with gloo's f32 and {s['bf16']:.4f} with bf16 on the wire, the mean "
            f"over the seeds; the difference with equal seeds is {s['difference']:+.6f} in the mean and {s['farthest']:+.6f} at most. Noise, the standard deviation of f32's loss, is "
            f"{s['noise_of_seeds']:.4f} over the seeds and {s['noise_of_orders']:.4f} over orders of the data. The mean curves are at most {s['farthest_of_curves']:.2f} of the noise "
            "over the seeds apart.")


def table(data):
    return markdown_table(["case", "entry", "ms", "gloo / this"], [[r["case"], r["entry"], f"{1e3 * r['median_seconds']:.0f}", f"{r['gloo_over_this']:.2f}"] for r in data["rows"]])
