"""Each case of torch's own suite of torch.distributed that passes with gloo passes with sluice; cases.tsv lists the other cases."""

import os
import signal
import subprocess
import sys
from importlib.metadata import version
from pathlib import Path

sys.path.append(str(Path(__file__).resolve().parents[1] / "python"))

import case_table  # noqa: E402
from package_test_bed import PackageTest, main, variables  # noqa: E402

SUITE = Path(__file__).with_name("suite.py")
DEADLINE_S = 900  # for all cases of a backend; suite.py has a deadline for each case
UPDATE = "SLUICE_UPDATE_TORCH_CASES"  # a variable: if set, the results are written into cases.tsv

# Some cases of each collective and of DistributedDataParallel, for the tests that run at every change.
CHOSEN = """
test_DistributedDataParallelCPU test_accumulate_gradients_no_sync_allreduce_hook test_all_gather_coalesced_simple test_all_gather_object_subgroup
test_all_reduce_coalesced_max_complex_unsupported test_all_reduce_coalesced_sum test_all_reduce_full_group_product test_all_reduce_min
test_all_reduce_sum_async test_all_reduce_sum_complex test_batch_isend_irecv_gloo test_broadcast_full_group
test_ddp_create_graph test_ddp_logging_data_cpu test_destroy_group test_gather_checks test_get_backend test_get_future
test_grads_same_across_ranks_with_no_sync test_monitored_barrier_gloo test_reduce_max test_scatter_complex test_send_recv_any_source
test_sparse_all_reduce_sum test_static_graph_api_cpu""".split()


class TorchSuite(PackageTest):
    def start_suite(self, backend, ranks, cases, reducers="none", per_host=1):
        """per_host: of the ranks, how many share a host; 1: the suite does not divide them into hosts."""
        folder = self.folder / f"{backend}-{reducers}-{per_host}"
        folder.mkdir()
        with open(folder / "tracebacks", "wb") as tracebacks:
            process = subprocess.Popen([sys.executable, "-B", SUITE, backend, str(ranks), str(per_host), *cases], stdout=subprocess.PIPE, stderr=tracebacks,
                                       stdin=subprocess.DEVNULL, text=True, start_new_session=True,
                                       env=variables(TMPDIR=str(folder), SLUICE_REDUCERS=reducers, CUDA_VISIBLE_DEVICES="",
                                                     SLUICE_HOSTS="auto" if per_host > 1 or reducers == "none" else "off"))
        self.addCleanup(end, process)
        return process, folder / "tracebacks"

    def results_of(self, process, tracebacks):
        """Returns {case: (result, reason)}."""
        printed, _ = process.communicate(timeout=DEADLINE_S)
        self.assertEqual(process.returncode, 0, printed + tracebacks.read_text())
        return {case: (result, reason) for case, result, reason in (line.split("\t") for line in printed.splitlines())}

    def compare(self, ranks, cases=(), per_host=(1,)):
        """Runs the cases with gloo, sluice, and sluice with a reducer and each number of ranks on a host: at the same time, because cases wait most of
        their time."""
        _, reducer = self.start_reducer()
        runs = [self.start_suite("gloo", ranks, cases), self.start_suite("sluice", ranks, cases)]
        runs += [self.start_suite("sluice", ranks, cases, reducer, each) for each in per_host]
        gloo, alone, *pooled = [self.results_of(*run) for run in runs]
        self.assertGreater(self.status(reducer)["data"]["operations"], 50, "the cases did not use the reducer")
        changes = []
        kinds = ["without reducers", *(f"with a reducer, {each} ranks on a host" for each in per_host)]
        for kind, sluice in zip(kinds, [alone, *pooled]):
            print(f"# {ranks} ranks, {kind}: case, gloo, sluice, reason")
            found = case_table.pair(gloo, sluice)
            for case, (results, reason) in found.items():
                print(case, *results.split("/"), reason, sep="\t")
            if UPDATE in os.environ:
                case_table.update(version("torch"), ranks, found)
            release, listed = case_table.load()
            changes += [f"{kind}: {change}" for change in case_table.changes(found, ranks, listed, cases)]
        self.assertFalse(changes, "\n".join([f"torch is {version('torch')}, the list is of {release}; {UPDATE}=1 updates it", *changes]))

    def test_chosen_cases(self):
        self.compare(3, CHOSEN, per_host=(2,))

    def test_2_ranks(self):
        self.compare(2, per_host=(1, 2))

    def test_3_ranks(self):
        self.compare(3)

    def test_4_ranks(self):
        self.compare(4, per_host=(1, 2, 4))


def end(process):
    """Ends the suite with its ranks."""
    if process.poll() is None:
        os.killpg(process.pid, signal.SIGKILL)
    process.communicate()


if __name__ == "__main__":
    main()
