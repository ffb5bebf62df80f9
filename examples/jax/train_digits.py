"""Trains a small network on handwritten digits with JAX on CPUs: each process computes gradients, and a session averages them.

    sluice reducer --listen 127.0.0.1:7470 & id=$(openssl rand -hex 16); ranks=
    export SLUICE_REDUCERS=127.0.0.1:7470 SLUICE_HOSTS=off     # off: these ranks stand for hosts
    for rank in 0 1; do python examples/jax/train_digits.py --rank $rank --ranks 2 --session $id & ranks="$ranks $!"; done; wait $ranks

Rank 0 prints "step 0 loss 2.2619001865386963" to "step 9 loss 0.9444246292114258". With --gloo instead of --session, gloo averages them."""

import argparse
import gzip
from pathlib import Path

import jax
import numpy
import sluice
from jax.experimental import multihost_utils
from jax.flatten_util import ravel_pytree

DIGITS = Path(__file__).resolve().parents[2] / "demo" / "digits" / "digits.csv.gz"
BATCH = 32  # images of a rank in a step


@jax.jit
@jax.value_and_grad
def loss_and_gradient(net, pixels, digits):
    scores = jax.numpy.tanh(pixels @ net["first"]) @ net["second"]
    return -jax.numpy.take_along_axis(jax.nn.log_softmax(scores), digits[:, None], 1).mean()


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rank", type=int, required=True)
    parser.add_argument("--ranks", type=int, required=True)
    parser.add_argument("--session", type=bytes.fromhex, help="16 bytes in hexadecimal, equal on all ranks")
    parser.add_argument("--gloo", help="instead of --session: HOST:PORT where rank 0 listens: uses JAX's own collectives")
    parser.add_argument("--steps", type=int, default=10)
    arguments = parser.parse_args()
    if arguments.gloo:
        jax.distributed.initialize(arguments.gloo, arguments.ranks, arguments.rank)
    else:
        session = sluice.Session(None, session_id=arguments.session, rank=arguments.rank, ranks=arguments.ranks)

    rows = numpy.loadtxt(gzip.open(DIGITS), dtype="float32", delimiter=",")
    first, second = jax.random.split(jax.random.key(1))
    net = {"first": jax.random.normal(first, (64, 128)) / 8, "second": jax.random.normal(second, (128, 10)) / 11}
    for step in range(arguments.steps):
        mine = rows[numpy.random.default_rng(step).permutation(len(rows))[arguments.rank * BATCH:][:BATCH]]  # other images on each rank
        loss, gradient = loss_and_gradient(net, mine[:, :-1] / 16, mine[:, -1].astype("int32"))
        flat, unflatten = ravel_pytree(gradient)
        if arguments.gloo:
            mean = multihost_utils.process_allgather(flat).mean(0)
        else:  # JAX's arrays are read-only
            mean = session.allreduce(flat.block_until_ready(), "avg", out=numpy.empty(flat.shape, "float32"))
        net = jax.tree.map(lambda weight, change: weight - 0.5 * change, net, unflatten(mean))
        if arguments.rank == 0:
            print(f"step {step} loss {loss}", flush=True)


if __name__ == "__main__":
    main()
