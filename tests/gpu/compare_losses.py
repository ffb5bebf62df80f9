"""usage: compare_losses.py ONE OTHER: largest relative difference of two runs' losses; exit 2 above what another order of summing in f32 explains."""

import sys

LIMIT = 0.02  # after some hundred steps of SGD, from differences in the last bit of gradients


def read(path):
    with open(path, encoding="utf-8") as lines:
        return [float(line) for line in lines]


def main():
    one, other = map(read, sys.argv[1:3])
    if len(one) != len(other) or not one:
        sys.exit(f"{len(one)} and {len(other)} losses")
    early = max(abs(a - b) / max(abs(a), 1e-6) for a, b in zip(one[:20], other[:20]))
    late = max(abs(a - b) / max(abs(a), 0.05) for a, b in zip(one, other))
    print(f"losses: first 20 steps within {early:.2e}, all {len(one)} within {late:.2e}")
    sys.exit(0 if early < 1e-3 and late < LIMIT else 2)


if __name__ == "__main__":
    main()
