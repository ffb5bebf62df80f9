"""usage: torch_memory_rank.py HOST: a rank of torch_memory_test.py. Prints a line of JSON: the bytes that this process has got by a group with
one session, and by one more group. "shared" is the memory of the host's segments, "own" what no other process shares."""

import json
import os
import sys

os.environ["SLUICE_HOST_ID"] = sys.argv[1]

import sluice.torch  # noqa: E402, F401
import torch  # noqa: E402
import torch.distributed as dist  # noqa: E402
from package_test_bed import join_torch  # noqa: E402


def memory():
    found = {"shared": 0, "own": 0}
    is_segment = False
    with open("/proc/self/smaps") as smaps:
        for line in smaps:
            name, _, value = line.partition(":")
            if "-" in name:
                is_segment = "memfd:sluice" in line
            elif name == "Size" and is_segment:
                found["shared"] += int(value.split()[0]) << 10
            elif name == "Private_Dirty" and not is_segment:
                found["own"] += int(value.split()[0]) << 10
    return found


def reduce(group=None):
    """Uses all places of a session."""
    for _ in range(3):
        dist.all_reduce(LARGE, group=group)


LARGE = torch.ones(8 << 20)
states = [memory()]
join_torch("sluice")
reduce()
states.append(memory())
reduce(dist.new_group())
states.append(memory())
dist.barrier()
dist.destroy_process_group()
print(json.dumps([{kind: after[kind] - before[kind] for kind in after} for before, after in zip(states, states[1:])]))
