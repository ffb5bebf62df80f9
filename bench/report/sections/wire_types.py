"""Section: held-out losses with each wire type, with and without error feedback."""

import statistics

import wire_types
from plots import panels
from run import CannotRun, markdown_table
from sluice_run import SluiceFailed

TITLE = "Training with fewer bits on the wire"
RESULTS = "wire_types_training.json"  # the losses during training would make results.json too long
FACTS = {"schema": wire_types.SCHEMA, "command": wire_types.COMMAND}


def measure(run):
    arguments = wire_types.parse(["--sluice", str(run.program), *run.pick([], ["--brief", "--seeds", "2"])])
    if not arguments.python.exists():
        raise CannotRun(f"{arguments.python} does not exist: run scripts/python_env.sh")
    try:
        return wire_types.measure(arguments)
    except SluiceFailed as error:
        raise CannotRun(str(error)) from error


def entry_text(row):
    return row["wire"] + (", error feedback" if row["feedback"] else "")


def joined(texts):
    return f"{', '.join(texts[:-1])} and {texts[-1]}"


def in_noise(data, task, difference):
    return abs(difference) / wire_types.noise(data, task)[0]


def farthest_text(data, wires, feedback):
    """States the largest difference from f32 of some entries in units of the noise, of the mean and of a single seed."""
    rows = [(task, row) for task in wire_types.TASKS for row in wire_types.summary(data, task) if row["wire"] in wires and row["feedback"] == feedback]
    mean, single = (max(in_noise(data, task, row[key]) for task, row in rows) for key in ("difference", "farthest"))
    return f"{mean:.2f} ({single:.2f})"


def noise_text(data):
    count = len({run["seed"] for run in data["runs"]})
    deviations = [wire_types.noise(data, task) for task in wire_types.TASKS]
    of_seeds, of_orders = (joined([f"{pair[index]:.4f} ({task})" for task, pair in zip(wire_types.TASKS, deviations)]) for index in (0, 1))
    repeated = "the same parameters, bit by bit" if all(wire_types.is_repeatable(data, task) for task in wire_types.TASKS) else "other parameters"
    blocks = ("mxfp8", "int8")
    return (f"Noise, the standard deviation of f32's loss: {of_seeds} over the seeds; {of_orders} over {count} orders of the data from the same first parameters. Of {count} runs it may be "
            f"wrong by a factor of two. A repetition gives {repeated}. The largest mean difference from f32 (that of a single seed) in units of the noise is "
            f"{farthest_text(data, blocks, True)} in 8 bits with error feedback, {farthest_text(data, blocks, False)} without, and {farthest_text(data, ('bf16',), False)} for bf16. "
            "Differences below 1 do not show which type is better. These short tasks do not show how large models train.")


def text(data):
    of_tasks = "; ".join(f"{task}: {data['tasks'][task]['description']}, {values_of(data, task)} parameters, {data['tasks'][task]['steps']} steps" for task in wire_types.TASKS)
    unequal = data["tasks"][wire_types.WITHOUT_NOISE]
    return (f"`{wire_types.COMMAND}`: {data['ranks']} processes of DistributedDataParallel with `sluice.ddp_hook`, and a reducer. {of_tasks}. A loss is the last step's on held-out data, "
            f"the mean over {len({run['seed'] for run in data['runs']})} seeds ([all losses]({RESULTS})). \"- f32\" is the mean difference from f32 with the same seed, \"/ noise\" its "
            "amount in units of the noise over the seeds.\n\n"
            f"{noise_text(data)}\n\n"
            f"What error feedback is for, \"{wire_types.WITHOUT_NOISE}\": {unequal['description']}. A rank's gradient does not become 0 where the "
            f"average does, so its rounding, repeated in every step, moves the optimum. The column is the training loss above f32's after {unequal['steps']} steps.\n\n"
            "Where int8 loses, \"small values\": `bench/training/small_values.py` averages groups of 1 value of about 1 and 127 values of about 0.001, in 200 steps. The column is the "
            "share of the small values' sum that arrives. With error feedback ranks send a small value seldom, as one step of the scale, and at different times. "
            "Their average is then less than half a step and becomes 0.")


def values_of(data, task):
    return next(run["values"] for run in data["runs"] if run["task"] == task)


def small_values(data, wire, feedback):
    return [row for row in data["small_values"] if (row["wire"], row["feedback"]) == (wire, feedback)]


def table(data):
    summaries = {task: list(wire_types.summary(data, task)) for task in (*wire_types.TASKS, wire_types.WITHOUT_NOISE)}
    ranks = "/".join(str(row["ranks"]) for row in small_values(data, "int8", True))
    head = ["wire type", *(title for task in wire_types.TASKS for title in (f"{task}: loss", "- f32", "/ noise")),
            f"{wire_types.WITHOUT_NOISE}: - f32", f"% of small values, {ranks} ranks"]
    rows = []
    for of_tasks in zip(*summaries.values()):
        entry = of_tasks[0]
        cells = [entry_text(entry)]
        for task, row in zip(wire_types.TASKS, of_tasks):
            cells += [f"{row['loss']:.4f}", *(["", ""] if row["wire"] == "f32" else [f"{row['difference']:+.5f}", f"{in_noise(data, task, row['difference']):.2f}"])]
        cells += ["" if entry["wire"] == "f32" else f"{of_tasks[-1]['difference']:+.7f}",
                  "/".join(f"{100 * row['arrived']:.0f}" for row in small_values(data, entry["wire"], entry["feedback"]))]
        rows.append(cells)
    return markdown_table(head, rows)


def curve(values_of_seeds):
    """Returns the mean and the standard deviation over the seeds at each measured step."""
    return [(statistics.mean(values), statistics.stdev(values)) for values in zip(*values_of_seeds)]


def plots(data, folder):
    losses, differences = [], []
    for task in wire_types.TASKS:
        exact = wire_types.runs_by_start(data, task)
        seeds = [start for start in exact if start[0] == start[1]]
        steps = [data["tasks"][task]["interval"] * number for number in range(len(exact[seeds[0]]["losses"]))]
        of_losses, of_differences = [], []
        for wire, feedback in wire_types.ENTRIES:
            runs = wire_types.runs_by_start(data, task, wire, feedback)
            label = entry_text({"wire": wire, "feedback": feedback})
            of_losses.append((label, curve([runs[start]["losses"] for start in seeds])))
            if wire != "f32":
                of_differences.append((label, curve([[a - b for a, b in zip(runs[start]["losses"], exact[start]["losses"])] for start in seeds])))
        losses.append((f"{task}: held-out loss", steps[1:], [(label, points[1:]) for label, points in of_losses], None))
        noise = [deviation for _, deviation in of_losses[0][1]]
        differences.append((f"{task}: loss - f32's", steps[1:], [(label, points[1:]) for label, points in of_differences], noise[1:]))
    return panels(folder, "wire-types-loss.svg", "held-out loss by wire type: mean and standard deviation over the seeds", "step", [losses, differences])
