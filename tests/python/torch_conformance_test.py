"""The backend "sluice" where torch promises the same of every backend: results are compared with those of gloo in the same script."""

import json
import re
import signal
import unittest
from pathlib import Path

from package_test_bed import main
from torch_test_bed import TorchTest

RANK = "torch_conformance_rank.py"
EXPECTED = {"sum": 4, "gathered": [[1, 2]] * 2}
MEMORY_OF_THREE_SESSIONS = "20M"  # and not of four


class TorchConformance(TorchTest):
    def job(self, backend, mode, reducers="none", **extra):
        return self.start_ranks(RANK, 2, reducers, backend, mode, SLUICE_REDUCERS=reducers, MASTER_ADDR="127.0.0.1", **extra)

    def later_sessions(self, reducers, change, count=0):
        """Calls `change` between the first and the later sessions of a job, which wait until the first has `count` reducers. Returns what both ranks print."""
        ranks = self.job("sluice", "pool", reducers)
        for rank in ranks:
            self.assertEqual(rank.stdout.readline(), "joined\n")
        change()
        for rank in ranks:
            rank.stdin.write(f"{count}\n")
            rank.stdin.flush()
        first, second = map(json.loads, self.outputs(ranks))
        self.assertEqual(first, second)
        return first

    def test_returns_what_gloo_returns(self):
        gloo, sluice = ([json.loads(printed) for printed in self.outputs(self.job(backend, "results"))] for backend in ("gloo", "sluice"))
        for rank, (of_gloo, ours) in enumerate(zip(gloo, sluice)):
            self.assertEqual(ours.pop("polled"), [[1, 2], [3], [6], [[3], [7]][rank], [[1, 2], []][rank]])
            self.assertEqual(ours.pop("multiplied"), [[0, 12], [4, 16], [8, 20]])
            self.assertEqual(ours.pop("nested"), 5)
            for error, root in zip(ours["refused"], (5, -1, 5, -1), strict=True):
                self.assertIn(f"invalid root tensor: {root}", error)
            self.assertEqual(ours, of_gloo)

    def test_a_timeout_tells_the_time_that_passed(self):
        ranks = self.job("sluice", "silent")
        text, seconds = json.loads(ranks[0].stdout.readline())
        ranks[1].stdin.write("\n")
        ranks[1].stdin.flush()
        self.outputs(ranks)
        waited = re.match(r"backend sluice: Timed out after ([\d.]+) s, the group's limit is 0\.5 s: ", text)
        self.assertIsNotNone(waited, text)
        self.assertAlmostEqual(float(waited[1]), 0.5, delta=0.01)
        self.assertGreaterEqual(seconds, 0.5)

    def test_a_second_attempt_finds_the_keys_of_the_first_in_the_store(self):
        store = str(self.folder / "store")
        first = self.job("sluice", "pool", STORE=store)
        for rank in first:
            self.assertEqual(rank.stdout.readline(), "joined\n")
        for rank in first:
            rank.kill()  # so that nothing removes the keys
            rank.communicate()
        self.assertEqual(self.outputs(reversed(self.job("sluice", "once", STORE=store))), ["0\n"] * 2)

    def test_torchrun_restarts_the_ranks(self):
        """The store of torchrun's agent keeps the keys of the first attempt."""
        _, address = self.start_reducer()
        command = ["-m", "torch.distributed.run", "--nproc-per-node", "2", "--max-restarts", "1", "--monitor-interval", "0.1", "--master-addr", "127.0.0.1",
                   "--master-port", str(self.reserve_port()), Path(__file__).with_name(RANK), "sluice", "restarted"]
        (printed,) = self.outputs([self.python(*command, SLUICE_REDUCERS=address, INIT="env://")])
        self.assertEqual(printed.count("[2.0, 1]"), 2, printed)

    def test_later_sessions_use_the_reducers_that_are_left(self):
        for end in ("kill", "drain"):
            (_, kept), (leaving, other) = self.start_reducer(), self.start_reducer()
            change = (lambda reducer=leaving: reducer.signal(signal.SIGKILL)) if end == "kill" else lambda reducer=leaving: self.expect_drained(reducer)
            self.assertEqual(self.later_sessions(f"{other},{kept}", change), {**EXPECTED, "reducers": kept, "gathered by": [1, 1]})

    def test_later_sessions_use_a_reducer_that_was_added(self):
        (_, first), (_, added) = self.start_reducer(), self.start_reducer()
        pool = self.write("pool.txt", first)
        found = self.later_sessions(f"@{pool}", lambda: self.write("pool.txt", f"{first}\n{added}\n"), count=2)
        self.assertEqual(found, {**EXPECTED, "reducers": f"{first},{added}", "gathered by": [2, 2]})

    def test_groups_have_the_credentials_of_the_default_group(self):
        key = self.make_key()
        reducer, address = self.start_reducer("--key-file", key)
        printed = self.outputs(self.job("sluice", "keyed", address, KEY=str(key)))
        (total, groups), same = map(json.loads, printed)
        self.assertEqual([total, groups], same)
        self.assertEqual(total, 2 ** groups)
        audit = [line for line in reducer.stderr().splitlines() if "audit: session of job" in line]
        self.assertEqual(len(audit), groups)
        for tenant, sessions in {"train-7": 2, "acme": 1, "split": groups - 3}.items():
            self.assertEqual(sum(rf'job \"train-7\", tenant \"{tenant}\"' in line for line in audit), sessions, audit)

    def test_large_gathers_run_without_a_reducer_that_lacks_memory_for_them(self):
        _, reducer = self.start_reducer("--memory-limit", MEMORY_OF_THREE_SESSIONS)
        self.assertEqual(self.later_sessions(reducer, lambda: None), {**EXPECTED, "reducers": reducer, "gathered by": [1, 0]})

    def test_variables_choose_where_the_ranks_meet(self):
        port = self.reserve_port()
        found = json.loads(self.outputs([self.start_script(Path(__file__).with_name(RANK), "sluice", "addresses", str(port))])[0])
        self.assertEqual(found["SLUICE_IFNAME==l"], "backend sluice: no interface of this host has an address and matches SLUICE_IFNAME='=l'")
        self.assertEqual(found[f"SLUICE_RENDEZVOUS=localhost:{port}"], f"localhost:{port}")
        self.assertNotIn("192.0.2.1", found["SLUICE_RENDEZVOUS=192.0.2.1:7470"])  # an address of another host
        for setting in ("SLUICE_IFNAME=l", "GLOO_SOCKET_IFNAME=lo", "MASTER_ADDR=127.0.0.2"):
            self.assertTrue(found[setting].startswith("127.0.0."), found)

    def test_a_session_opens_on_all_ranks_or_on_none(self):
        first, second = map(json.loads, self.outputs(self.job("sluice", "few", self.start_reducer()[1])))
        self.assertGreater(len(second), 3)
        self.assertEqual([text == "opened" for text in first], [text == "opened" for text in second], list(zip(first, second)))
        self.assertIn("too many open files", second[0])


if __name__ == "__main__":
    main()
