"""Tests `sluice bench link`: the bandwidth of each pair of worker and reducer, and the report of slow hosts."""

import json

from relay import Relay
from sluice_process import SluiceTest, main, rows_of

# A fast link is measured for a few milliseconds, in which a busy machine can hold it up for longer than the measurement takes: with six busy
# processes on two processors one reached only 0.08 of the median. Links of this rate reached at most 0.015, with sanitizers.
SLOW = 0.03
SLOW_BYTES_PER_SECOND = 300_000
QUICK = ("bench", "link", "--size", "256K", "-n", "3", "--workers", "2")


class Link(SluiceTest):
    def test_every_pair_is_measured(self):
        csv = self.folder / "result.csv"
        result = self.run_json("bench", "link", "--size", "256K", "-n", "3", "--workers", "3", "--reducers", "2", "--csv", csv)
        self.assertEqual(result["schema"], "sluice.bench.link/1")
        self.check_machine(result)
        reducers = result["config"]["reducers"]
        self.assertEqual(len(reducers), 2)
        self.assertEqual([(row["rank"], row["reducer"]) for row in result["results"]], [(rank, reducer) for rank in range(3) for reducer in reducers])
        rates = sorted(row["gb_per_second"] for row in result["results"])
        self.assertGreater(rates[0], 0)
        self.assertEqual(result["median_gb_per_second"], rates[3])
        for row in result["results"]:
            self.assertAlmostEqual(row["of_median"], row["gb_per_second"] / rates[3], places=6)
            self.assertEqual(row["count"], 3)
        self.assertEqual(len(result["alone_with_all_reducers_gb_per_second"]), 3)
        self.assertGreater(result["all_at_once_gb_per_second"], 0)
        self.assertEqual(result["nwrong"], 0)
        lines = csv.read_text().splitlines()
        self.assertEqual(lines[0], "rank,host,reducer,gb_per_second,count")
        self.assertEqual([line.split(",")[2] for line in lines[1:]], [*reducers, "all"] * 3)

    def test_matrix_has_ranks_and_reducers(self):
        pool = ",".join(f"{self.start_reducer()[1]}*{weight}" for weight in (1, 3))
        done = self.run_sluice(*QUICK, "--connect", pool)
        self.assertEqual([(row[0], len(row)) for row in rows_of(done.stdout)], [("0", 5), ("1", 5)])
        head = next(line for line in done.stdout.splitlines() if line.startswith("# rank"))
        self.assertEqual(head.split(), ["#", "rank", "host", *(reducer.split("*")[0] for reducer in pool.split(",")), "all"])
        self.assertIn("# Out of bounds values : 0 OK", done.stdout)

    def test_no_session_of_a_pair_logs_a_line_into_the_table(self):
        key = self.make_key()
        key.chmod(0o644)  # each session logs that others can read it
        pool = ",".join(self.start_reducer("--key-file", key)[1] for _ in range(2))
        done = self.run_sluice(*QUICK, "--connect", pool, "--key-file", key)
        self.assertLessEqual(done.stderr.count("level=info"), 1)  # the command reads the key once, before the table
        shown = self.run_sluice("--log-level", "info", *QUICK, "--connect", pool, "--key-file", key)
        self.assertIn("level=info", shown.stderr)

    def test_slow_reducer_is_reported(self):
        addresses = [self.start_reducer()[1] for _ in range(3)]
        relay = Relay(addresses[1], bytes_per_second=SLOW_BYTES_PER_SECOND)
        self.addCleanup(relay.close)
        addresses[1] = relay.address
        path = self.folder / "result.json"
        done = self.run_sluice(*QUICK, "--slow", str(SLOW), "--connect", ",".join(addresses), "--fail-slow", "--json", path, expect=2)
        result = json.loads(path.read_text())
        self.assertEqual([(entry["rank"], entry["reducer"]) for entry in result["slow"]], [(None, relay.address)])
        self.assertLess(result["slow"][0]["of_median"], SLOW)
        self.assertIn(f"# slow                 : reducer {relay.address}: ", done.stdout)

    def test_slow_worker_is_reported(self):
        addresses = [self.start_reducer()[1] for _ in range(2)]
        relays = [Relay(address, bytes_per_second=SLOW_BYTES_PER_SECOND) for address in addresses]
        for relay in relays:
            self.addCleanup(relay.close)
        # Ranks must list the same reducers, but may use different addresses, because reducers identify themselves in the handshake.
        session = "0" * 31 + "1"
        arguments = ("bench", "link", "--size", "256K", "-n", "3", "--slow", str(SLOW), "--fail-slow", "--workers", "3", "--session", session)
        ranks = [self.start(*arguments, "--rank", rank, "--connect", ",".join(relay.address for relay in relays) if rank == 2 else ",".join(addresses))
                 for rank in range(3)]
        self.expect_ends(ranks, 2)
        slow = [line for line in ranks[0].stdout().splitlines() if line.startswith("# slow")]
        self.assertEqual(len(slow), 1, slow)
        self.assertRegex(slow[0], r"^# slow +: worker 2 on \S+: ")
        self.assertEqual(ranks[1].stdout() + ranks[2].stdout(), "")

    def test_wrong_data_is_exit_2(self):
        _, reducer = self.start_reducer("--no-crc")
        relay = Relay(reducer, corrupt_from=4096)
        self.addCleanup(relay.close)
        done = self.run_sluice(*QUICK, "--no-crc", "--connect", relay.address, expect=2)
        self.assertRegex(done.stdout, r"# Out of bounds values : \d+ FAILED")

    def test_invalid_options_are_refused(self):
        self.expect_usage_errors(("bench", "link"), (("--size", "2"), ("-n", "0"), ("--slow", "0"), ("--slow", "1"), ("--slow", "much"), ("--workers", "0")))


if __name__ == "__main__":
    main()
