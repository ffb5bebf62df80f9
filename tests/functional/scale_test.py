"""Many workers on one machine: correct sums, and a reducer's memory within the formula of docs/guides/operate.md."""

import json

from sluice_process import SluiceTest, main

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
        for reducer in json.loads(self.run_sluice("status", "--reducers", pool).stdout):
            status = reducer["status"]
            lanes = min(2, status["lanes"])
            bound = 64 * MIB + status["connections"]["accepted"] * MIB // 4 + session_bytes(64, lanes)
            self.assertLess(status["max_rss_bytes"], bound)
            self.assertGreater(status["data"]["bytes_in"], 64 * 3 * MIB // 2)
            self.assertEqual(status["sessions"]["completed"], 1)


if __name__ == "__main__":
    main()
