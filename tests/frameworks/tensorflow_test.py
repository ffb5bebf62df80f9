"""sluice.tensorflow and the examples of TensorFlow: losses beside MultiWorkerMirroredStrategy's, lost workers, TF_CONFIG, refusals."""

import json
import os
import re
import socket
import sys
import threading
import time
import warnings
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "python"))

from package_test_bed import DEADLINE_S, LOST_S, ROOT, PackageTest, main, variables  # noqa: E402

os.environ["TF_CPP_MIN_LOG_LEVEL"] = "2"
RANK = Path(__file__).with_name("tensorflow_rank.py")
SERVERS = RANK.with_name("tensorflow_servers.py")
EXAMPLES = ROOT / "examples" / "tensorflow"
STEPS, EPOCHS = 140, 5
SENT_BYTES = 4 * (65 * 128 + 129 * 10) // 2  # of a step, at least: blocks of zeros do not travel, and pixels at the edges are zero


class TensorflowTest(PackageTest):
    def configs(self, workers, **more):
        """Returns the TF_CONFIG of each worker, with ports of this test."""
        cluster = {"worker": [f"127.0.0.1:{self.reserve_port()}" for _ in range(workers)], **more.pop("cluster", {})}
        return [json.dumps({"cluster": cluster, "task": {"type": "worker", "index": index}, **more}) for index in range(workers)]

    def worker(self, mode, config, **extra):
        return self.python(RANK, mode, TF_CONFIG=config, CUDA_VISIBLE_DEVICES="", TF_NUM_INTRAOP_THREADS="1", TF_NUM_INTEROP_THREADS="2", **extra)


class Training(TensorflowTest):
    def compare(self, workers, configs, **extra):
        mirrored = self.configs(workers)
        processes = [self.worker("compare", configs[rank], MIRRORED_CONFIG=mirrored[rank], CHECKPOINT=str(self.folder / "model.keras"), **extra)
                     for rank in range(workers)]
        return [json.loads(output.splitlines()[-1]) for output in self.outputs(processes)]

    def check_losses(self, result, in_function):
        """`in_function`: the relative difference that the losses of a tf.function may have."""
        mirrored = result["mirrored"]
        self.assertEqual(len(mirrored), STEPS)
        self.assertLess(mirrored[-1], mirrored[0] / 5)
        self.assert_close(result["loop"], mirrored, in_function)
        a_epoch = STEPS // EPOCHS
        self.assert_close(result["fit"], [sum(mirrored[first:first + a_epoch]) / a_epoch for first in range(0, STEPS, a_epoch)], 1e-5)

    def assert_close(self, losses, expected, relative):
        self.assertEqual(len(losses), len(expected))
        worst = max(abs(loss - other) / other for loss, other in zip(losses, expected))
        print(f"largest relative difference of {len(losses)} losses: {worst:.2g}", flush=True)
        self.assertLessEqual(worst, relative)

    def check_reductions(self, result, workers):
        total = workers * (workers + 1) / 2
        sums = result["reductions"]["sums"]
        self.assertEqual(sums[:-1], [[[total] * 3] * 2] * 7)
        self.assertEqual(sums[-1], [[float(sum(range(row + 1, workers + 1, 2)))] * 2 for row in range(2)] + [[0.0] * 2])
        self.assertEqual(result["reductions"]["mean"], (workers - 1) / 2)
        self.assertEqual(result["reductions"]["uneven"], -1)
        self.assertEqual(result["reductions"]["broadcast"], ["True", "[0, 0, 0]", "[[1.5]]", "1j"])

    def test_two_workers_have_the_losses_of_the_strategy(self):
        _, address = self.start_reducer()
        results = self.compare(2, self.configs(2), SLUICE_REDUCERS=address, SLUICE_COLOCATED="off", EAGER="")  # the reducer gets all
        first = results[0]
        self.check_losses(first, in_function=1e-6)
        self.assert_close(first["eager"], first["mirrored"], 1e-5)
        self.assertLess(first["resumed"][0], first["fit"][-1])  # training began with the checkpoint of rank 0 on all ranks
        for result in results:
            self.check_reductions(result, 2)
            self.assertGreater(min(result["loop_bytes"], result["fit_bytes"]), STEPS * SENT_BYTES)
        received = self.status_after_sessions(address, 5)["data"]["bytes_in"]
        self.assertGreater(received, 2 * 4 * STEPS * SENT_BYTES)

    def test_four_workers_find_the_reducers_in_tf_config(self):
        _, address = self.start_reducer()
        results = self.compare(4, self.configs(4, cluster={"ps": [address]}, environment="cloud"))
        self.check_losses(results[0], in_function=1e-5)
        for result in results:
            self.check_reductions(result, 4)
            self.assertGreater(min(result["loop_bytes"], result["fit_bytes"]), 0)
        self.assertGreater(self.status_after_sessions(address, 3)["data"]["bytes_in"], STEPS * SENT_BYTES)

    def test_on_sagemaker_workers_reduce_by_themselves(self):
        """The toolkit lists a server of TensorFlow on each host as `ps`, in an environment "cloud": none of them gets a connection."""
        servers = [self.enterContext(socket.create_server(("127.0.0.1", 0))) for _ in range(2)]
        cluster = {"master": [f"127.0.0.1:{self.reserve_port()}"], "worker": [f"127.0.0.1:{self.reserve_port()}"],
                   "ps": [f"127.0.0.1:{server.getsockname()[1]}" for server in servers]}
        common = {"SM_CURRENT_HOST": "algo-1", "SLUICE_REDUCERS": "none", "SLUICE_RENDEZVOUS": f"127.0.0.1:{self.reserve_port()}", "CUDA_VISIBLE_DEVICES": ""}
        tasks = [json.dumps({"cluster": cluster, "environment": "cloud", "task": {"type": kind, "index": 0}}) for kind in ("master", "worker")]
        printed = self.outputs([self.python("-W", "error:SLUICE", EXAMPLES / "train_loop.py", TF_CONFIG=task, **common) for task in tasks])
        losses = [float(loss) for loss in re.findall(r"^step \d+ loss (\S+)$", printed[0], re.MULTILINE)]
        self.assertEqual(len(losses), STEPS)
        self.assertLess(losses[-1], losses[0] / 5)
        for output in printed:
            self.assertGreater(int(re.search(r"sent (\d+) bytes to reducers", output)[1]), STEPS * SENT_BYTES // 2)
        for server in servers:
            server.setblocking(False)
            self.assertRaises(BlockingIOError, server.accept)

    def end_one_of(self, workers, expect, **extra):
        """Worker 1 ends, with the exit code `expect`. The others must get an error within LOST_S; returns the reasons."""
        _, address = self.start_reducer()
        processes = [self.worker("lost", config, SLUICE_REDUCERS=address, VICTIM="1", **extra) for config in self.configs(workers)]
        self.assertEqual(processes[1].wait(4 * DEADLINE_S), expect)
        deadline, reasons = time.monotonic() + LOST_S, []
        for process in processes[:1] + processes[2:]:
            printed, error = process.communicate(timeout=max(0.0, deadline - time.monotonic()))
            self.assertEqual(process.returncode, 0, error)
            (kind, text), (own_kind, reason) = json.loads(printed.splitlines()[-1])
            self.assertEqual(kind, "UnknownError")
            self.assertIn(f"{own_kind}: {reason}", text)
            reasons.append((own_kind, reason))
        return reasons

    def test_a_killed_worker_ends_the_others(self):
        for kind, reason in self.end_one_of(3, expect=-9):
            self.assertEqual(kind, "Lost")
            self.assertIn("rank 1", reason)

    def test_a_worker_that_leaves_early_ends_the_others(self):
        ((kind, reason),) = self.end_one_of(2, expect=0, LEAVES="")
        self.assertEqual(kind, "Closed")
        self.assertIn("rank 1 left the session", reason)

    def test_asynchronous_workers_train_as_with_parameter_servers(self):
        _, address = self.start_reducer("--state", self.folder / "state")
        workers = [self.python(EXAMPLES / "train_store.py", "--worker", worker, SLUICE_REDUCERS=address) for worker in range(2)]
        losses = [tuple(map(float, re.search(r"loss (\S+) to (\S+), \d+ of 280 pushes", printed).groups())) for printed in self.outputs(workers)]
        self.assertGreater(max(first for first, _ in losses), 2)  # a worker that starts late finds a trained model
        self.assertLess(max(last for _, last in losses), 0.6)
        (shared,) = self.status(address)["models"]
        self.assertEqual((shared["name"], shared["mode"]), ("digits", "bounded"))
        self.assertGreaterEqual(shared["delta_bytes"], 2 * 280 * 2 * SENT_BYTES)
        cluster = {kind: [f"127.0.0.1:{self.reserve_port()}" for _ in range(count)] for kind, count in (("chief", 1), ("worker", 2), ("ps", 1))}
        processes = [self.python(SERVERS, TF_CONFIG=json.dumps({"cluster": cluster, "task": {"type": kind, "index": index}}), CUDA_VISIBLE_DEVICES="")
                     for kind in cluster for index in range(len(cluster[kind]))]  # the chief first; the others end with the test
        first, last = json.loads(self.outputs(processes[:1])[0].splitlines()[-1])
        print(f"sluice.store: {losses}, ParameterServerStrategy: {first:.4g} to {last:.4g}", flush=True)
        self.assertGreater(first, 2)
        self.assertLess(last, 0.6)


class Places(TensorflowTest):
    def setUp(self):
        super().setUp()
        from sluice.tensorflow import cluster

        self.cluster = cluster

    def place(self, config=None, **more):
        """Returns the place, and the texts of warnings."""
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            place = self.cluster.place_of_environment({**({} if config is None else {"TF_CONFIG": json.dumps(config)}), **more})
        return place, [str(warning.message) for warning in caught]

    def test_ranks_are_in_the_order_of_libsluice(self):
        nodes = {"worker": ["w0:1", "w1:1"], "chief": ["c0:1"], "ps": ["p0:1"], "evaluator": ["e0:1"]}
        for kind, index, rank in (("chief", 0, 0), ("worker", 0, 1), ("worker", 1, 2)):
            self.assertEqual(self.place({"cluster": nodes, "task": {"type": kind, "index": index}}), ((rank, 3, ("c0:1", "w0:1", "w1:1")), []))
        for kind in ("ps", "evaluator"):
            self.assertRaisesRegex(ValueError, f"task {kind} 0 does not train", self.place, {"cluster": nodes, "task": {"type": kind, "index": 0}})
        beyond = {"cluster": nodes, "task": {"type": "worker", "index": 2}}
        self.assertRaisesRegex(ValueError, "index 2 is out of range: worker has 2 entries", self.place, beyond)
        self.assertRaisesRegex(ValueError, "\"task\" needs", self.place, {"cluster": nodes})
        for text in ("yes", "[]", '{"cluster": {"worker": 3}}', '{"cluster": {"worker": [3]}}'):
            self.assertRaisesRegex(ValueError, "^TF_CONFIG", self.place, TF_CONFIG=text)
        self.assertEqual([self.place(), self.place({})], [(None, [])] * 2)

    def test_sluice_variables_win_and_say_so(self):
        config = {"cluster": {"worker": ["w0:1", "w1:1"], "ps": ["p0:1"]}, "task": {"type": "worker", "index": 1}, "environment": "cloud"}
        own = {"SLUICE_RANK": "0", "SLUICE_WORKERS": "3"}
        self.assertEqual(self.place(None, **own), ((0, 3, ()), []))
        self.assertEqual(self.place(config, **own), ((0, 3, ("w0:1", "w1:1")), [
            "SLUICE_RANK and SLUICE_WORKERS are used, rank 0 of 3, and not TF_CONFIG, rank 1 of 2"]))
        self.assertEqual(self.place(config, SLUICE_RANK="1", SLUICE_WORKERS="2", SLUICE_REDUCERS="r:1")[1], [])  # rank 0 says so for all
        config["task"]["index"] = 0
        self.assertEqual(self.place(config, SLUICE_REDUCERS="r:1")[1], ["SLUICE_REDUCERS=r:1 is used, and not the reducers of TF_CONFIG, p0:1"])
        for real in ({"config": {**config, "environment": ""}}, {"config": config, "SM_CURRENT_HOST": "algo-1"}):  # parameter servers of TensorFlow
            self.assertEqual(self.place(**real, SLUICE_REDUCERS="r:1")[1], [])
        self.assertRaisesRegex(ValueError, "SLUICE_WORKERS is not; set both or neither", self.place, config, SLUICE_RANK="1")
        self.assertRaisesRegex(ValueError, "SLUICE_RANK is '-1'; expected", self.place, config, SLUICE_RANK="-1", SLUICE_WORKERS="2")
        self.assertRaisesRegex(ValueError, "SLUICE_RANK is 2 and SLUICE_WORKERS is 2; expected", self.place, config, SLUICE_RANK="2", SLUICE_WORKERS="2")

    def agree(self, places, timeout=20.0):
        """Returns the session id or exception of each place."""
        results = [None] * len(places)

        def run(index):
            try:
                results[index] = self.cluster.agree_on_session(places[index], timeout)
            except Exception as error:
                results[index] = error

        threads = [threading.Thread(target=run, args=(index,), daemon=True) for index in range(len(places))]
        for thread in reversed(threads):  # rank 0 last: the others wait for it
            thread.start()
        for thread in threads:
            thread.join(DEADLINE_S)
        return results

    def test_workers_agree_on_a_new_session_each_time(self):
        workers = tuple(f"127.0.0.1:{self.reserve_port()}" for _ in range(4))
        places = [self.cluster.Place(rank, 4, workers) for rank in range(4)]
        first, second = set(self.agree(places)), set(self.agree(places))
        self.assertEqual((len(first), len(second), len(first | second)), (1, 1, 2))
        self.assertEqual(len(first.pop()), 16)

    def test_workers_that_cannot_agree(self):
        workers = tuple(f"127.0.0.1:{self.reserve_port()}" for _ in range(4))
        places = [self.cluster.Place(rank, 4, workers) for rank in range(4)]
        found = self.agree([places[0], places[2]], timeout=1)
        self.assertEqual(str(found[0]), f"rank 1, 3 did not come to {workers[0]} within 1 s")
        self.assertRegex(str(found[1]), f"rank 0 did not answer at {workers[0]} within 1 s")
        found = self.agree([places[0], places[1]._replace(workers=workers[:2])], timeout=1)
        self.assertEqual((type(found[1]).__name__, str(found[1])), ("Mismatch", "rank 1 and rank 0 have different clusters in TF_CONFIG, or sizes"))
        with socket.create_server(("127.0.0.1", 0)) as other:
            taken = f"127.0.0.1:{other.getsockname()[1]}"
            self.assertRegex(str(self.agree([self.cluster.Place(0, 2, (taken, "w1:1"))])[0]), f"cannot listen at {taken}, .*pass session_id")

            def greet():
                with other.accept()[0] as connection:
                    connection.sendall(b"220 mail\n")

            threading.Thread(target=greet, daemon=True).start()
            self.assertRegex(str(self.agree([self.cluster.Place(1, 2, (taken, "w1:1"))])[0]), f"{taken}, .* is another program's")
        self.assertRegex(str(self.agree([self.cluster.Place(1, 2)])[0]), "set TF_CONFIG, or SLUICE_SESSION")


class Refusals(TensorflowTest):
    def test_releases_that_lack_what_is_needed(self):
        self.assertEqual(self.outputs([self.python("-c", "import sluice, sys; print('tensorflow' in sys.modules, 'keras' in sys.modules)")]), ["False False\n"])
        keras = '__version__ = "{}"\nclass backend:\n    backend = staticmethod(lambda: "{}")\n'
        for tensorflow, keras_version, backend, text in (
                ("2.15.1", "2.15.0", "tensorflow", "tensorflow 2.15.1 is too old: sluice.tensorflow needs tensorflow 2.16 or later"),
                ("2.21.0", "2.15.0", "tensorflow", "keras 2.15.0 is too old: sluice.tensorflow needs keras 3.0 or later"),
                ("2.21.0", "3.12.0", "jax", "keras 3.12.0 runs on jax: sluice.tensorflow needs KERAS_BACKEND=tensorflow")):
            self.write("tensorflow.py", f'__version__ = "{tensorflow}"\n')
            self.write("keras.py", keras.format(keras_version, backend))
            path = os.pathsep.join([str(self.folder), variables()["PYTHONPATH"]])
            process = self.python("-c", "import sluice.tensorflow", PYTHONPATH=path)
            self.assertIn(f"sluice.errors.Unsupported: {text}\n", process.communicate(timeout=DEADLINE_S)[1])

    def test_calls_that_are_refused(self):
        import keras
        import sluice.tensorflow
        import tensorflow

        self.assertRaisesRegex(RuntimeError, "call sluice.tensorflow.init", sluice.tensorflow.rank)
        self.assertRaisesRegex(ValueError, "this process has no rank", sluice.tensorflow.init)
        self.assertRaisesRegex(ValueError, "pass both or none", sluice.tensorflow.init, rank=0)
        self.assertRaisesRegex(TypeError, "GradientDescentOptimizer; expected one of keras 3", sluice.tensorflow.DistributedOptimizer,
                               tensorflow.compat.v1.train.GradientDescentOptimizer(0.1))
        optimizer = sluice.tensorflow.DistributedOptimizer(keras.optimizers.SGD())
        self.assertRaisesRegex(ValueError, "already reduces", sluice.tensorflow.DistributedOptimizer, optimizer)
        _, address = self.start_reducer()
        sluice.tensorflow.init(address, rank=0, size=1)
        self.addCleanup(sluice.tensorflow.shutdown)
        self.assertEqual((sluice.tensorflow.rank(), sluice.tensorflow.size()), (0, 1))
        self.assertRaisesRegex(RuntimeError, "init\\(\\) was called before", sluice.tensorflow.init)


if __name__ == "__main__":
    main()
