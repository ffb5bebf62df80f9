"""Scripts for horovod.torch run with sluice.horovod: under mpirun, with the variables of Slurm, and with those of several launchers."""

import json
import re
import shutil
import signal
import subprocess
import sys
import unittest
import warnings
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "python"))

from package_test_bed import DEADLINE_S, LOST_S, ROOT, ReducerTest, main, variables  # noqa: E402

RANK = Path(__file__).with_name("horovod_rank.py")
EXAMPLE = ROOT / "examples" / "horovod" / "train_digits.py"
RANKS = 2
# Of the weights, relative to their norm. f32: with two ranks both sums have one order. fp16: a gradient is rounded to 11 bits, and 12 steps add up.
F32_TOLERANCE, FP16_TOLERANCE = 1e-6, 1e-4


def slurm(rank):
    return {"SLURM_PROCID": str(rank), "SLURM_NTASKS": str(RANKS), "SLURM_LOCALID": str(rank), "SLURM_JOB_ID": "77", "SLURM_STEP_ID": "0"}


class Horovod(ReducerTest):
    maxDiff = None

    def ranks_of_slurm(self, *modes, **extra):
        return [self.python(RANK, *modes, SLUICE_REDUCERS=self.address, RESULTS=str(self.folder), **{**slurm(rank), **extra}) for rank in range(RANKS)]

    def mpirun(self, *arguments, **extra):
        if not shutil.which("mpirun"):
            self.skipTest("needs program:mpirun: mpirun of Open MPI is not installed")
        environment = variables(SLUICE_REDUCERS=self.address, RESULTS=str(self.folder), OMPI_ALLOW_RUN_AS_ROOT="1", OMPI_ALLOW_RUN_AS_ROOT_CONFIRM="1",
                                OMPI_MCA_btl="self,vader", OMPI_MCA_oob_tcp_if_include="lo", **extra)
        run = subprocess.run(["mpirun", "-n", str(RANKS), "--oversubscribe", "--bind-to", "none", sys.executable, "-B", *map(str, arguments)],
                             capture_output=True, text=True, timeout=200, env=environment, check=False)
        self.assertEqual(run.returncode, 0, run.stdout + run.stderr)
        return run

    def results(self, mode, ranks=range(RANKS)):
        return [json.loads((self.folder / f"{mode}-{rank}.json").read_text()) for rank in ranks]

    def test_trainings_have_the_weights_of_one_process_with_the_variables_of_slurm(self):
        self.outputs(self.ranks_of_slurm("training", HOROVOD_FUSION_THRESHOLD="20000"))
        for found in self.results("training"):
            print({name: f"{case['error']:.1e}" for name, case in found["cases"].items()})
            for name, case in found["cases"].items():
                self.assertLess(case["error"], FP16_TOLERANCE if name == "fp16" else F32_TOLERANCE, name)
                self.assertIs(case["equal on ranks"], True, name)
                self.assertGreater(case["moved"], 0.02, name)
            self.assertGreater(found["cases"]["fp16"]["error"], 0)  # otherwise nothing was rounded
            self.assertEqual(found["buckets"], 4)
            # Each training sends as many gradients. Five are in f32, of which one has no data on rank 1, and zeros do not travel.
            self.assertGreater(found["bytes of f16"], 0)
            self.assertLess(found["bytes of f16"], 0.6 * found["bytes of f32"] / 4)
        received = json.loads(self.run_sluice("status", "--reducers", self.address).stdout)[0]["status"]["data"]["bytes_in"]
        self.assertGreater(received, sum(found["bytes of f16"] for found in self.results("training")))

    def test_collectives_under_mpirun(self):
        self.mpirun(RANK, "collectives")
        for rank, found in enumerate(self.results("collectives")):
            self.assertEqual(found, {
                "rank": rank, "size": 2, "local": [rank, 2], "cross": [0, 1], "homogeneous": True, "max in place": [[1, 2, 3], [4, 5, 6]],
                "sum": [[1, 3, 5], [7, 9, 11]], "done": True, "average": [[0.5, 1.5, 2.5], [3.5, 4.5, 5.5]], "integers": [1, 5], "scaled": [10, 10],
                "grouped": [[1, 3, 5], 1], "gathered": [[0, 0], [0, 0], [1, 1]], "gathered nothing of rank 0": [True] * 3, "broadcast": [1, 2, 3],
                "scattered": [[0, 2], [4]][rank], "objects": [{"rank": 0}, {"rank": 1}], "object": "of rank 1", "optimizer": [1.5, 0.2], "norm": 1.5,
                "step": 1, "elastic": 4, "sparse": [[-0.5, -0.5], [-0.5, -0.5], [0, 0], [0, 0]]})

    def test_the_example_has_the_same_losses_whoever_starts_it_and_says_once_which_variables_win(self):
        losses = self.losses(self.mpirun(EXAMPLE).stdout)
        horovodrun = {"HOROVOD_SIZE": "2", "HOROVOD_GLOO_RENDEZVOUS_ADDR": "127.0.0.1", "HOROVOD_GLOO_RENDEZVOUS_PORT": "1", "OMPI_COMM_WORLD_SIZE": "2"}
        ranks = [self.python(EXAMPLE, SLUICE_REDUCERS=self.address, HOROVOD_RANK=str(rank), OMPI_COMM_WORLD_RANK=str(1 - rank), **horovodrun)
                 for rank in range(RANKS)]
        printed = [rank.communicate(timeout=100) for rank in ranks]
        self.assertEqual(self.losses(printed[0][0]), losses, printed)
        self.assertEqual(printed[1][0], "")
        for rank, (_, error) in enumerate(printed):
            text = f"HOROVOD_RANK={rank} and HOROVOD_SIZE=2 win over OMPI_COMM_WORLD_RANK={1 - rank} and OMPI_COMM_WORLD_SIZE=2"
            self.assertEqual(error.count(text), 1, error)

    def losses(self, printed):
        found = re.findall(r"^epoch \d+ loss (\S+)$", printed, re.MULTILINE)
        self.assertEqual(len(found), 3, printed)
        print(found)
        self.assertLess(float(found[-1]), 0.5 * float(found[0]))
        return found

    def test_refusals_and_a_process_without_a_launcher(self):
        self.outputs([self.python(RANK, "refusals", RESULTS=str(self.folder))])
        found, = self.results("refusals", [0])
        for name, text in {
                "rank before init": r"^ValueError: sluice.horovod is not initialized; call hvd.init\(\)$",
                "join": "^AttributeError: sluice.horovod has no join: .*zero$",
                "alltoall": "^AttributeError: sluice.horovod has no alltoall: ", "add_process_set": "^AttributeError: sluice.horovod has no add_process_set: ",
                "Adasum": "^AttributeError: sluice.horovod has no Adasum: ", "SyncBatchNorm": "^AttributeError: sluice.horovod has no SyncBatchNorm: ",
                "nothing": "^AttributeError: module 'sluice.horovod' has no attribute 'nothing'$",
                "average and op": "^ValueError: average and op are both given",
                "root": r"^ValueError: root_rank is 1; expected 0..0$", "names": "^ValueError: named_parameters lacks 1 of the 6 parameters",
                "names twice": "^ValueError: named_parameters has these names more than once: 0.bias, ",
                "passes": "^ValueError: backward_passes_per_step is 0; expected 1 or more$"}.items():
            self.assertRegex(found["refused"].pop(name), text)
        self.assertEqual(found, {"refused": {}, "size": 1, "mean": [3], "gathered": [1, 1], "scattered": [1, 1], "nccl": False})

    def test_a_rank_that_dies_is_an_error_with_its_number(self):
        survivor, dead = self.ranks_of_slurm("lost")
        self.assertEqual(dead.wait(4 * DEADLINE_S), -signal.SIGKILL)
        _, error = survivor.communicate(timeout=LOST_S)
        self.assertEqual(survivor.returncode, 0, error)
        found, = self.results("lost", [0])
        self.assertRegex(found["error"], r"^Lost: .*rank 1")
        self.assertEqual(found["restored"], 2)


class Launchers(unittest.TestCase):
    """Which variables say what the rank is."""

    def find(self, **environment):
        from sluice.placement import launchers

        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            return launchers.find(environment), [str(warning.message) for warning in caught]

    def test_each_launcher(self):
        ompi = {"OMPI_COMM_WORLD_RANK": "1", "OMPI_COMM_WORLD_SIZE": "4", "OMPI_COMM_WORLD_LOCAL_RANK": "1", "OMPI_COMM_WORLD_LOCAL_SIZE": "2",
                "PMIX_NAMESPACE": "8.1"}
        torchrun = {"RANK": "2", "WORLD_SIZE": "4", "LOCAL_RANK": "0", "LOCAL_WORLD_SIZE": "2", "MASTER_ADDR": "host", "MASTER_PORT": "29500"}
        pmi = {"PMI_RANK": "0", "PMI_SIZE": "2", "MPI_LOCALRANKID": "0", "MPI_LOCALNRANKS": "1", "SLUICE_JOB_ID": "mine"}
        group = {**slurm(1), "SLURM_NTASKS": "6", "SLURM_NTASKS_HET_GROUP_0": "4"}
        self.assertEqual(self.find(**ompi), (("Open MPI", 1, 4, 1, 2, "PMIX_NAMESPACE=8.1"), []))
        self.assertEqual(self.find(**torchrun), (("torchrun", 2, 4, 0, 2, "MASTER_ADDR=host MASTER_PORT=29500"), []))
        self.assertEqual(self.find(**pmi), (("PMI", 0, 2, 0, 1, "SLUICE_JOB_ID=mine"), []))
        self.assertEqual(self.find(**group), (("Slurm", 1, 4, 1, None, "SLURM_JOB_ID=77 SLURM_STEP_ID=0"), []))
        self.assertEqual(self.find(**slurm(0), **ompi)[0][:3], ("Open MPI", 1, 4))  # mpirun in a job of Slurm is no contradiction
        self.assertEqual(self.find(**slurm(0), **ompi)[1], [])
        own, warned = self.find(**torchrun, SLUICE_RANK="3", SLUICE_WORKERS="4", SLUICE_SESSION="ab")
        self.assertEqual(own, ("SLUICE_RANK", 3, 4, None, None, "SLUICE_SESSION=ab"))
        self.assertEqual(warned, ["SLUICE_RANK=3 and SLUICE_WORKERS=4 win over RANK=2 and WORLD_SIZE=4; unset those that are not of this job"])
        self.assertEqual(self.find(SLURM_PROCID="0", SLURM_NTASKS="4"), (("none", 0, 1, 0, 1, ""), []))  # the script of sbatch

    def test_variables_that_make_no_sense(self):
        for text, environment in (("RANK is set, but WORLD_SIZE is not; set both or neither", {"RANK": "0"}),
                                  ("HOROVOD_SIZE is set, but HOROVOD_RANK is not", {"HOROVOD_SIZE": "2"}),
                                  ("OMPI_COMM_WORLD_RANK is 2 and OMPI_COMM_WORLD_SIZE is 2; expected",
                                   {"OMPI_COMM_WORLD_RANK": "2", "OMPI_COMM_WORLD_SIZE": "2"}),
                                  ("PMI_RANK is 'one'; expected a non-negative integer", {"PMI_RANK": "one", "PMI_SIZE": "2"}),
                                  ("PMI_RANK is set, but no variable names this run of the job; set SLUICE_JOB_ID", {"PMI_RANK": "1", "PMI_SIZE": "2"})):
            with self.assertRaisesRegex(ValueError, text):
                self.find(**environment)


if __name__ == "__main__":
    main()
