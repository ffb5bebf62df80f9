"""Computes the minimum time of an allreduce over links of given rates: with co-located reducers, with the pool alone, and as a ring.

All functions return the time for 1 unit of data in each direction; rates are in any one unit. core/link_split.h computes the
shares that reach the first of these times."""


def split_time(workers, reducers):
    """Returns the minimum time with a co-located reducer in every worker. `workers`, `reducers`: rates of the workers' and of the
    dedicated reducers' links. A worker that sums a share x moves 1 + (n - 2) x, a dedicated reducer n x."""
    count = len(workers)
    if count == 1:
        return 0.0  # the only worker reduces in its own memory

    def fits(time):
        """True when the shares that all links can carry within `time` add up to 1."""
        if time * min(workers) < 1:
            return False
        if count == 2:
            return True  # a share adds no traffic to a worker
        return sum((time * rate - 1) / (count - 2) for rate in workers) + sum(time * rate / count for rate in reducers) >= 1

    low, high = 0.0, 1 / min(workers)
    while not fits(high):
        low, high = high, 2 * high
    for _ in range(100):
        middle = (low + high) / 2
        low, high = (low, middle) if fits(middle) else (middle, high)
    return high


def pool_time(workers, reducers):
    """Returns the minimum time when dedicated reducers sum everything, each a share in proportion to its rate."""
    return max(1 / min(workers), len(workers) / sum(reducers))


def ring_time(workers):
    """Returns the minimum time of a ring. Every link carries the same bytes, so the slowest link decides."""
    return 2 * (len(workers) - 1) / len(workers) / min(workers)
