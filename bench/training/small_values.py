"""usage: small_values.py REDUCERS RANKS: how much of small values arrives in averages over many steps, if each group has one large value.

Every 128th value is about 1, the others about 0.001; all vary from step to step and from rank to rank. The ranks are threads, each with a
session. Prints a line of JSON for each wire type, with and without error feedback."""

import json
import os
import sys
from concurrent.futures import ThreadPoolExecutor

import numpy
import sluice

COUNT, GROUP, STEPS = 1280, 128, 200
SMALL = 0.001
ENTRIES = (("mxfp8", False), ("mxfp8", True), ("int8", False), ("int8", True))


def average(reducers, session_id, rank, ranks, wire, feedback):
    """Returns the sum of the averages over all steps, and the sum of this rank's contributions."""
    random = numpy.random.default_rng(rank)
    residual = numpy.zeros(COUNT, dtype="float32") if feedback else None
    arrived, contributed = numpy.zeros(COUNT), numpy.zeros(COUNT)
    with sluice.Session(reducers, session_id=session_id, rank=rank, ranks=ranks, wire_dtype=wire) as session:
        for _ in range(STEPS):
            x = (SMALL * (1 + random.standard_normal(COUNT) / 2)).astype("float32")
            x[::GROUP] = 1 + random.standard_normal(COUNT // GROUP) / 4
            contributed += x
            arrived += session.allreduce(x, "avg", residual=residual)
    return arrived, contributed


def main():
    reducers, ranks = sys.argv[1], int(sys.argv[2])
    is_small = numpy.arange(COUNT) % GROUP != 0
    for wire, feedback in ENTRIES:
        session_id = os.urandom(16)
        with ThreadPoolExecutor(ranks) as pool:
            of_ranks = list(pool.map(lambda rank: average(reducers, session_id, rank, ranks, wire, feedback), range(ranks)))  # noqa: B023
        expected = sum(contributed for _, contributed in of_ranks)[is_small].sum() / ranks
        arrived = float(of_ranks[0][0][is_small].sum() / expected)
        print(json.dumps({"ranks": ranks, "wire": wire, "feedback": feedback, "arrived": round(arrived, 4)}), flush=True)


if __name__ == "__main__":
    main()
