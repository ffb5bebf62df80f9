"""Section: training with outer steps and with asynchronous workers, beside synchronous training."""

import outer_steps
from plots import bars
from run import CannotRun, markdown_table
from sluice_run import SluiceFailed

TITLE = "Outer steps and asynchronous training"
RESULTS = "outer_steps_training.json"
FACTS = {"schema": outer_steps.SCHEMA, "command": outer_steps.COMMAND}


def measure(run):
    arguments = outer_steps.parse(["--sluice", str(run.program), *run.pick([], ["--brief", "--seeds", "1"])])
    if not arguments.python.exists():
        raise CannotRun(f"{arguments.python} does not exist: run scripts/python_env.sh")
    try:
        return outer_steps.measure(arguments)
    except SluiceFailed as error:
        raise CannotRun(str(error)) from error


def batches_per_second(data, task, row):
    return data["ranks"] * data["tasks"][task]["steps"] / row["seconds"]


def text(data):
    seeds = len({run["seed"] for run in data["runs"]})
    of_tasks = "; ".join(f"{task}: {entry['description']}, {entry['steps']} steps" for task, entry in data["tasks"].items())
    return (f"`{outer_steps.COMMAND}`: {data['ranks']} workers and a reducer with `--state`. {of_tasks}. All entries train on as many samples. A step takes a fixed time on each "
            f"worker, and four times as long on one of them if the entry is slow. Means over {seeds} seeds. MB: sent by all workers. DiLoCo's learning rate is that of synchronous training. mxfp8, int8: the type of pushes.")


def table(data):
    cells = []
    for task in data["tasks"]:
        for row in outer_steps.summary(data, task):
            refused = "" if row["refused"] is None else f"{100 * row['refused']:.1f} %"
            cells.append([task, row["entry"], f"{row['loss']:.4f}", f"{row['deviation']:.4f}", f"{100 * row['correct']:.2f} %", f"{batches_per_second(data, task, row):.1f}",
                          f"{row['sent'] / 1e6:.1f}", refused])
    return markdown_table(["task", "training", "held-out loss", "deviation", "correct", "batches/s", "MB", "refused"], cells)


def plots(data, folder):
    rows = {task: list(outer_steps.summary(data, task)) for task in data["tasks"]}

    def groups(value):
        return [(task, [(row["entry"], value(task, row), value(task, of_task[0])) for row in of_task]) for task, of_task in rows.items()]

    return [*bars(folder, "outer-steps-accuracy.svg", "held-out accuracy", "%", groups(lambda _, row: 100 * row["correct"]), "synchronous"),
            *bars(folder, "outer-steps-rate.svg", "speed of all workers", "batches per second", groups(lambda task, row: batches_per_second(data, task, row)), "synchronous")]
