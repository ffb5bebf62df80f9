"""usage: torch_ends_rank.py ends | interrupted [finally]: a rank of a job of two whose process groups end while Work is in progress.

ends: prints JSON with what an abort, a destruction and a fork leave behind. interrupted: both print "waiting", and rank 0 waits for an operation until the
test interrupts it; with `finally`, it destroys the group first. Rank 1 prints the error that this causes."""

import faulthandler
import json
import os
import signal
import sys
import threading
import time

import sluice.torch  # noqa: F401
import torch
import torch.distributed as dist
from package_test_bed import join_torch

CYCLES = 10
DEADLINE_S = 30


def error_of(call):
    """Returns the type and the text of the exception."""
    try:
        call()
    except Exception as error:  # the type is the result
        return [type(error).__name__, str(error)]
    return ["no error", ""]


def until_ended(group):
    deadline = time.monotonic() + DEADLINE_S
    while group.session().error() is None:
        assert time.monotonic() < deadline, "the session of this rank did not end"
        time.sleep(0.001)


def aborted():
    """Rank 0 aborts a group while another thread waits for Work of it that rank 1 never joins."""
    group = dist.new_group([0, 1])
    x = torch.ones(1000)
    dist.all_reduce(x, group=group)
    dist.barrier()  # rank 1 has the result, which an abort may overtake
    seconds, errors = 0.0, []
    if dist.get_rank() == 0:
        offloaded = dist.all_reduce(x, group=group, async_op=True)
        future = dist.all_reduce(torch.ones(10), group=group, async_op=True).get_future()
        in_gloo = dist.irecv(torch.ones(10), 1, group=group)
        gathered = dist.all_gather_into_tensor(torch.empty(1 << 19), torch.ones(1 << 18), group=group, async_op=True)
        waiter = threading.Thread(target=lambda: errors.append(error_of(offloaded.wait)))
        waiter.start()
        begin = time.monotonic()
        group.abort()
        waiter.join()
        seconds = time.monotonic() - begin
        errors += [error_of(future.wait), error_of(in_gloo.wait), error_of(gathered.wait)]
    else:
        until_ended(group)
    errors.append(error_of(lambda: dist.all_reduce(x, group=group)))
    dist.destroy_process_group(group)
    return {"seconds": seconds, "errors": errors}


def destroyed():
    """Rank 0 destroys a group while Work of it is in progress."""
    group = dist.new_group([0, 1])
    work, x = None, torch.ones(1000)
    dist.barrier()  # rank 1 has opened the session, too
    if dist.get_rank() == 0:
        work = dist.all_reduce(x, group=group, async_op=True)
    else:
        until_ended(group)
    dist.destroy_process_group(group)
    return error_of(work.wait) if work else None


def forked():
    """The child of a fork gets errors, and the parent continues."""
    x = torch.ones(1000)
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        errors = [error_of(call) for call in (lambda: dist.all_reduce(x), lambda: dist.broadcast(x, 0), lambda: dist.recv(x, 1 - dist.get_rank()))]
        dist.group.WORLD.abort()
        dist.destroy_process_group()
        os.write(writing, json.dumps(errors).encode())
        os._exit(0)
    os.close(writing)
    with os.fdopen(reading) as pipe:
        errors = json.load(pipe)
    assert os.waitpid(child, 0)[1] == 0
    dist.all_reduce(x)
    return {"errors": errors, "sum": x[0].item()}


def left():
    """Threads of the process, those of libraries included, and descriptors."""
    return {"threads": len(os.listdir("/proc/self/task")), "descriptors": len(os.listdir("/proc/self/fd"))}


def print_ends():
    found = {"aborted": aborted(), "destroyed": destroyed(), "before": left()}
    for _ in range(CYCLES):
        aborted()
    dist.barrier()
    print(json.dumps({**found, "after": left(), "forked": forked()}))


def interrupted():
    x = torch.ones(1000)
    dist.all_reduce(x)
    if dist.get_rank() == 1:
        print("waiting", flush=True)
        until_ended(dist.group.WORLD)
        print(json.dumps(error_of(lambda: dist.all_reduce(x))))
        return
    try:
        print("waiting", flush=True)
        dist.all_reduce(x)
    finally:
        if "finally" in sys.argv:
            begin = time.monotonic()
            dist.destroy_process_group()
            print(json.dumps(time.monotonic() - begin), flush=True)


def main():
    faulthandler.dump_traceback_later(100, exit=True)  # a hang shows where, before the test's deadline
    signal.signal(signal.SIGINT, signal.default_int_handler)  # the parent may have ignored the signal
    join_torch("sluice")
    {"ends": print_ends, "interrupted": interrupted}[sys.argv[1]]()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
