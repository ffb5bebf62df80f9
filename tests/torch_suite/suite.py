"""usage: suite.py BACKEND RANKS RANKS-PER-HOST [CASE...]: runs cases of the test suite that torch ships for torch.distributed; without names, all of them.

Prints a line for each case: name, result (pass, skip or fail) and reason, separated by tabs. Everything else goes to stderr. The ranks of a case
are forked from this process, because importing torch takes longer than a case."""

import multiprocessing
import os
import re
import sys
import tempfile
import unittest
from unittest import mock

DEADLINE_S = 60  # for a case

BACKEND, RANKS, RANKS_PER_HOST = sys.argv[1:4]
# The module reads these when it is imported: its decorators choose the cases. All backends get the cases of gloo.
os.environ.update(BACKEND="gloo", WORLD_SIZE=RANKS, TEMP_DIR=tempfile.gettempdir(), INIT_METHOD=f"file://{tempfile.mktemp()}",
                  PYTORCH_PRINT_REPRO_ON_FAILURE="0")

import torch  # noqa: E402
from torch.testing._internal import common_distributed  # noqa: E402
from torch.testing._internal.distributed import distributed_test  # noqa: E402


class Suite(distributed_test.TestDistBackend, distributed_test.DistributedTest._DistTestBase):
    def setUp(self):
        super().setUp()
        self._start_processes(multiprocessing.get_context("fork").Process)

    @classmethod
    def _run(cls, rank, *arguments, **options):
        if int(RANKS_PER_HOST) > 1:
            os.environ["SLUICE_HOST_ID"] = f"host {rank // int(RANKS_PER_HOST)}"
        super()._run(rank, *arguments, **options)

    def _test_accumulate_gradients_no_sync(self, *arguments, **options):
        # Chooses its model by the name of the backend, and has none for other names.
        with mock.patch.object(distributed_test, "BACKEND", "gloo"):
            super()._test_accumulate_gradients_no_sync(*arguments, **options)

    def _test_all_reduce_helper(self, group, group_id, rank, op, master_value, worker_value, expected_value, **options):
        super()._test_all_reduce_helper(group, group_id, rank, op, master_value, worker_value, expected_value, **options)
        for source in group:  # again, because torch's function does not look at the results
            tensor = torch.full((100,), master_value if rank == source else worker_value, dtype=options.get("dtype", torch.float))
            distributed_test.dist.all_reduce(tensor, op, group_id)
            self.assertEqual(tensor, torch.full_like(tensor, expected_value))


class Results(unittest.TestResult):
    """Prints the result of each case when it ends. torch's code and the ranks print to stdout, too, which therefore becomes stderr."""

    def __init__(self):
        super().__init__()
        self.output = os.fdopen(os.dup(1), "w")
        os.dup2(2, 1)

    def report(self, case, result, reason=""):
        print(case._testMethodName, result, " ".join(reason.split()), sep="\t", file=self.output, flush=True)

    def addSuccess(self, case):
        self.report(case, "pass")

    def addSkip(self, case, reason):
        self.report(case, "skip", reason)

    def addFailure(self, case, error):
        self.addError(case, error)

    def addError(self, case, error):
        print(f"-- {case._testMethodName}: {error[1]}", file=sys.stderr, flush=True)
        causes = re.findall(r"^[\w.]*(?:Error|Exception): .*", str(error[1]), re.MULTILINE)
        self.report(case, "fail", causes[-1] if causes else str(error[1]).partition("\n")[0])


def main():
    if BACKEND == "sluice":
        import sluice.torch  # noqa: F401  registers the backend
    distributed_test.BACKEND = os.environ["BACKEND"] = BACKEND
    common_distributed.TIMEOUT_DEFAULT = DEADLINE_S
    common_distributed.TIMEOUT_OVERRIDE.clear()
    results = Results()
    suite = unittest.TestSuite()
    for name in sys.argv[4:] or unittest.defaultTestLoader.getTestCaseNames(Suite):
        gpus = getattr(getattr(Suite, name), "_min_gpus_required", 0)
        if gpus > torch.accelerator.device_count():
            results.addSkip(Suite(name), f"needs {gpus} GPUs")  # as the ranks would say, had they been started
        else:
            suite.addTest(Suite(name))
    suite.run(results)


if __name__ == "__main__":
    main()
