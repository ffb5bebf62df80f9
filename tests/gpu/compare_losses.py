"""Compares the losses of two runs. Prints the largest relative difference; exit code 2 if a different order of float32 sums cannot explain it.

usage: compare_losses.py FIRST SECOND"""

import sys

LIMIT = 0.02  # differences in the last bit of gradients grow to this in some hundred steps of SGD


def read(path):
    with open(path, encoding="utf-8") as lines:
        return [float(line) for line in lines]


def main():
    first, second = map(read, sys.argv[1:3])
    if len(first) != len(second) or not first:
        sys.exit(f"cannot compare {len(first)} with {len(second)} losses")
    early = max(abs(a - b) / max(abs(a), 1e-6) for a, b in zip(first[:20], second[:20]))
    late = max(abs(a - b) / max(abs(a), 0.05) for a, b in zip(first, second))
    print(f"losses: first 20 steps within {early:.2e}, all {len(first)} within {late:.2e}")
    sys.exit(0 if early < 1e-3 and late < LIMIT else 2)


if __name__ == "__main__":
    main()
