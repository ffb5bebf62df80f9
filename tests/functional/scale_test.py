"""Many workers on one machine: correct sums, and memory, connections and threads within the formulas of docs/guides/operate.md."""

import os
from pathlib import Path

from sluice_process import SluiceTest, children_of, main, until

MIB = 1 << 20


def session_bytes(ranks, lanes, window=2 * MIB, slot=256 * 1024):
    """Bytes that a session reserves on one reducer: the formula of docs/guides/operate.md."""
    slots = max(2, window // slot // lanes)
    groups = -(-ranks // 8)
    return lanes * slots * ((ranks + 1) * (slot + 128) + (groups * (2 * slot + 64) if groups > 1 else 0))


class ScaleTest(SluiceTest):
    def test_64_workers_over_two_reducers(self):
        pool = ",".join(self.start_reducer()[1] for _ in range(2))
        done = self.run_sluice("bench", "allreduce", "-b", "1M", "-e", "1M", "-n", "3", "--workers", "64", "--connect", pool)
        self.assertIn("# Out of bounds values : 0 OK\n", done.stdout)
        for address in pool.split(","):
            status = self.status_after_sessions(address, 1)
            lanes = min(2, status["lanes"])
            bound = 64 * MIB + status["connections"]["accepted"] * MIB // 4 + session_bytes(64, lanes)
            self.assertLess(status["max_rss_bytes"], bound)
            self.assertGreater(status["data"]["bytes_in"], 64 * 3 * MIB // 2)

    def test_64_workers_that_reduce_by_themselves(self):
        job = self.start("bench", "allreduce", "-b", "1M", "-e", "1M", "-n", "3", "--workers", "64", "--reducers", "0",
                         # Divided among the 64 processes that each worker connects to while they start.
                         "--connect-timeout", "60s")
        most = {}

        def sample():
            for child in children_of(job.pid):
                try:
                    status = dict(line.split(":", 1) for line in Path(f"/proc/{child}/status").read_text().splitlines())
                    now = {"rss": int(status["VmHWM"].split()[0]) * 1024, "threads": int(status["Threads"]), "descriptors": len(os.listdir(f"/proc/{child}/fd"))}
                except (OSError, KeyError):  # it has ended
                    continue
                before = most.get(child, now)
                most[child] = {key: max(value, before[key]) for key, value in now.items()}
            return job.ended()

        until("the job ends", sample)
        self.expect_ends([job])
        self.assertIn("# Out of bounds values : 0 OK\n", job.stdout())
        self.assertEqual(len(most), 64)
        connections = 4 * 64 - 2
        for worker in most.values():
            # Two of the program, one of which waits for SIGUSR2, three of the library, one of which measures the link, and two of the reducer.
            self.assertLessEqual(worker["threads"], 7)
            self.assertGreaterEqual(worker["descriptors"], connections)
            # Listeners, pollers, events, files; and, until the reducer sees that the others have closed them, two of each worker from the start:
            # where they met, and a handshake that was made again because the start took long.
            self.assertLess(worker["descriptors"], connections + 2 * 64 + 32)
            self.assertLess(worker["rss"], 64 * MIB + connections * MIB // 4 + session_bytes(64, 1, slot=16 * 1024))


if __name__ == "__main__":
    main()
