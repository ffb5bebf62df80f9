"""usage: examples_lost_rank.py lightning | accelerate: a rank of the example of torch with this framework, of which rank 1 kills itself in its third step,
before it has gradients. The variables are those of torchrun."""

import os
import signal
import sys

from examples_rank import FOLDER

sys.path.insert(0, str(FOLDER))


def dies_in_third_step(function):
    calls = 0

    def counted(*arguments):
        nonlocal calls
        calls += 1
        if calls == 3 and os.environ["RANK"] == "1":
            os.kill(os.getpid(), signal.SIGKILL)
        return function(*arguments)

    return counted


def main():
    framework, = sys.argv[1:]
    del sys.argv[1:]
    if framework == "lightning":
        import train_lightning as example

        example.Sums.training_step = dies_in_third_step(example.Sums.training_step)
    else:
        import train_accelerate as example

        example.Accelerator.backward = dies_in_third_step(example.Accelerator.backward)
    example.main()


if __name__ == "__main__":
    main()
