"""What the backend "sluice" refuses, with an error that says why, on all ranks and before it waits for others; and what it does at its limits."""

import json
import time

from package_test_bed import DEADLINE_S, main
from torch_test_bed import TorchTest

RANK = "torch_refusals_rank.py"


class TorchRefusals(TorchTest):
    def job(self, mode, ranks=2, **extra):
        return self.start_ranks(RANK, ranks, "none", mode, SLUICE_REDUCERS="none", SLUICE_HOSTS="auto", **extra)

    def test_tensors_of_several_devices_in_one_call(self):
        for printed in map(json.loads, self.outputs(self.job("devices"))):
            self.assertEqual(printed["sum"], 2)
            self.assertGreaterEqual(len(printed["errors"]), 7)
            for name, errors in printed["errors"].items():
                for error in errors:
                    self.assertRegex(error, r"^ValueError: backend sluice: the tensors of \w+ are on several devices: tensor 0 on (cpu|meta), tensor \d on (cpu|meta); ",
                                     name)

    def test_more_ranks_on_a_host_than_can_share_its_memory_reduce_without_it(self):
        printed, = self.outputs(self.job("many", 1))
        self.assertEqual(json.loads(printed), {"65.0": 65})

    def test_options_that_are_bad_on_one_rank_are_its_error_and_told_to_the_others(self):
        texts = {"key file": "key_file: cannot read /nonexistent/key", "variable": "SLUICE_KEY_FILE: cannot read /nonexistent/key", "type": "not int",
                 "wire type": "wire_dtype is 'fp4'; expected", "finding": "on_finding is", "interface": "no interface of this host has an address"}
        kinds = {"type": "TypeError: ", "wire type": "ValueError: ", "finding": "ValueError: "}
        begin = time.monotonic()
        for rank, printed in enumerate(map(json.loads, self.outputs(self.job("options")))):
            self.assertEqual(printed["sum"], 2)
            for case, error in printed["errors"].items():
                name, bad = case.split(" of ")
                self.assertIn(texts[name], error, case)
                own = kinds.get(name, "DistBackendError: backend sluice: ")
                self.assertTrue(error.startswith(own if rank == int(bad) else f"DistBackendError: backend sluice: rank {bad}: "), (case, error))
        self.assertLess(time.monotonic() - begin, DEADLINE_S)  # and not the 30 minutes of the groups

    def test_a_device_is_tried_without_the_meeting_point_of_the_groups(self):
        printed, = self.outputs(self.job("probe", 1))
        found = json.loads(printed)
        self.assertRegex(found.pop("no device"), "CUDA|cuda|GPU")
        self.assertEqual(set(found.values()), {None}, found)

    def test_a_group_of_one_rank_accepts_what_others_accept(self):
        for hosts in {}, {"HOSTS": "aa"}:
            for printed in map(json.loads, self.outputs(self.job("alone", **hosts))):
                for ranks, found in printed.items():
                    for name, told in found.items():
                        self.assertRegex(told, r"^[A-Z]\w+Error: ", (ranks, name)) if name in ("root", "size") else self.assertIs(told, True, (ranks, name))

    def check_results(self, ranks, **extra):
        """Each call is refused, and the next one works."""
        for printed in map(json.loads, self.outputs(self.job("results", ranks, **extra))):
            for name, (error, after) in printed["errors"].items():
                self.assertRegex(error, r"^RuntimeError: " + ("" if name == "complex factor" else r"backend sluice: result \d of \w+ has elements that share memory"), name)
                self.assertEqual(after, [ranks], name)
            self.assertEqual(printed["read"], [[ranks], [1], [ranks]])

    def test_tensors_that_cannot_hold_a_result(self):
        self.check_results(2)
        self.check_results(1)

    def test_tensors_that_cannot_hold_a_result_on_streams(self):
        self.check_results(2, HOSTS="ab")
        for hosts in "aa", "aabb":
            self.check_results(len(hosts), HOSTS=hosts)

    def test_timeouts_that_are_no_timedelta_or_negative(self):
        by_torch = {"allreduce's options", "new_group"}
        for printed in map(json.loads, self.outputs(self.job("timeouts"))):
            self.assertEqual(printed["sum"], 2)  # no refused call has begun
            for name, (number, negative) in printed["errors"].items():
                self.assertRegex(number, "^TypeError: " + ("" if name in by_torch else r"(timeout is 5; expected|got 5; expected \w+ or) a (timeout, a )?datetime.timedelta"), name)
                self.assertRegex(negative, r"^ValueError: timeout is -5 s; expected (0 s or more|more than 0 s)", name)


if __name__ == "__main__":
    main()
