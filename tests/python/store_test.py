"""sluice.store and sluice.torch.outer: models of a reducer with --state. Workers are threads, each with its own Store."""

import math
import signal
import subprocess
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from datetime import timedelta
from unittest import mock

import numpy
import sluice
import sluice.store
import sluice.torch.outer
import torch
from package_test_bed import DEADLINE_S, PackageTest, main, variables
from sluice.store import Store, asynchronous, bounded, nesterov, sync
from sluice_process import until

ADD = sluice.store.add()
CHILD = """
import os, sys, numpy, sluice, sluice.store
with sluice.store.Store(sys.argv[1]) as store:
    model = store.create("m", {"x": numpy.ones(3, "float32")}, mode=sluice.store.asynchronous(), rule=sluice.store.add())
    child = os.fork()
    if child == 0:
        try:
            model.pull()
        except sluice.Closed as error:
            print(error, flush=True)
        os._exit(0)
    os.waitpid(child, 0)
    print(model.pull().version == model.wait())
"""


def network(dtype=torch.float32):
    torch.manual_seed(1)
    return torch.nn.Sequential(torch.nn.Linear(6, 5), torch.nn.BatchNorm1d(5), torch.nn.ReLU(), torch.nn.Linear(5, 2)).to(dtype)


def values_of(module):
    return torch.cat([parameter.detach().float().flatten() for parameter in module.parameters()])


def backward(module, seed):
    x = torch.randn(8, 6, generator=torch.Generator().manual_seed(seed))
    module(x).square().mean().backward()


class StoreTest(PackageTest):
    def setUp(self):
        super().setUp()
        torch.set_num_threads(1)
        _, self.address = self.start_reducer("--state", self.folder / "state")
        self.store = self.new_store()

    def new_store(self, **options):
        store = Store(self.address, **{"timeout_ms": 20_000, **options})
        self.addCleanup(store.close)
        return store

    def create(self, mode, rule=ADD, name="m", **arrays):
        return self.store.create(name, arrays or {"x": numpy.zeros(4, "float32")}, mode=mode, rule=rule)

    def in_threads(self, *calls):
        with ThreadPoolExecutor(len(calls)) as pool:
            return [future.result(DEADLINE_S) for future in [pool.submit(call) for call in calls]]


class Models(StoreTest):
    def test_pushes_add_up_in_each_type(self):
        first = {"weight": torch.arange(6.0).view(2, 3), "scalar": torch.tensor(2.0), "half": torch.ones(70, dtype=torch.float16),
                 "brain": torch.ones(5, dtype=torch.bfloat16)}
        model = self.store.create("m", first, mode=asynchronous(), rule=ADD)
        self.assertTrue(model.is_creator)
        other = self.new_store()
        again = other.create("m", {name: torch.zeros_like(tensor) for name, tensor in first.items()}, mode=asynchronous(), rule=ADD)
        self.assertFalse(again.is_creator)
        start = model.wait()
        pushed = model.push({name: torch.full_like(tensor, 0.5) for name, tensor in first.items()}, start)
        self.assertEqual(pushed, ("contained", start + 1))
        version, tensors = again.pull(model.empty("torch"), min_version=start + 1)
        self.assertEqual(version, start + 1)
        for name, tensor in first.items():
            self.assertEqual((tensors[name].dtype, tensors[name].tolist()), (tensor.dtype, (tensor + 0.5).tolist()))
        # 1/3 with the 8 bits of bf16 on the wire.
        again.push({name: torch.full_like(tensor, 1 / 3) for name, tensor in first.items()}, version, wire_dtype="bf16")
        self.assertEqual(model.pull(tensors).tensors["scalar"].item(), numpy.float32(2.5) + torch.tensor(1 / 3).bfloat16().item())
        # Blocks round to 4 bits, or to steps of 1/127 of the largest value.
        for wire_dtype, error in (("mxfp8", 1 / 3 / 16), ("int8", 1 / 3 / 127)):
            before = model.pull(tensors)
            again.push({name: torch.full_like(tensor, 1 / 3) for name, tensor in first.items()}, before.version, wire_dtype=wire_dtype)
            expected = before.tensors["weight"] + 1 / 3
            torch.testing.assert_close(model.pull(model.empty("torch")).tensors["weight"], expected, rtol=0, atol=error)
            # All values of the model are below 8.
            torch.testing.assert_close(model.pull(model.empty("torch"), wire_dtype=wire_dtype).tensors["weight"], expected, rtol=1 / 16, atol=8 / 127 + error)
        self.assertEqual(self.store.list(), ["m"])
        self.assertEqual([tensor["dtype"] for tensor in model.describe()["spec"]["tensors"]], ["f32", "f32", "f16", "bf16"])
        with self.assertRaisesRegex(sluice.Mismatch, "versions"):
            self.store.create("m", first, mode=asynchronous(), rule=ADD, versions=3)
        self.store.delete("m")
        self.assertEqual(self.store.list(), [])

    def test_a_sync_step_is_the_weighted_mean(self):
        model = self.create(sync(quorum=2))
        second, start = self.new_store().model("m"), model.wait()

        def push(to, value, weight):
            return lambda: to.push({"x": numpy.full(4, value, "float32")}, start, weight)

        self.assertEqual(self.in_threads(push(model, 4, 3), push(second, 8, 1)), [("contained", start + 1)] * 2)
        numpy.testing.assert_array_equal(model.pull().tensors["x"], 5)
        self.assertEqual(push(second, 1, 1)(), ("late", start + 1))
        with self.assertRaises(sluice.Timeout):
            model.push({"x": numpy.ones(4, "float32")}, start + 1, timeout=0.05)

    def test_a_push_pull_returns_the_version_that_it_leads_to(self):
        model, start = self.create(sync(quorum=2), x=numpy.zeros(100_000, "float32")), 0  # several frames
        workers = [model, self.new_store().model("m")]

        def push_pull(worker, base, **options):
            into = {"x": numpy.empty(100_000, "float32")}
            return workers[worker].push_pull({"x": numpy.full(100_000, 2.0 + 4 * worker, "float32")}, base, into=into, **options)

        for step, options in enumerate(({}, {"wire_dtype": "bf16"}, {"pull_wire_dtype": "int8"}, {"wire_dtype": "mxfp8", "pull_wire_dtype": "f16"}), 1):
            pulled = self.in_threads(*(lambda worker=worker: push_pull(worker, start + step - 1, **options) for worker in range(2)))
            for each in pulled:
                self.assertEqual(each[:2], ("contained", start + step))
                numpy.testing.assert_allclose(each.tensors["x"], 4.0 * step, rtol=0.01)
        late = push_pull(1, start)
        self.assertEqual((late.outcome, late.version, late.tensors["x"][0]), ("late", start + 4, 16))
        # Without a quorum it times out; repeated, it counts once.
        self.assertRaises(sluice.Timeout, push_pull, 0, start + 4, timeout=0.2)
        self.assertEqual([each[:2] for each in self.in_threads(lambda: push_pull(0, start + 4), lambda: push_pull(1, start + 4))], [("contained", start + 5)] * 2)
        numpy.testing.assert_array_equal(model.pull().tensors["x"], 20)
        # In other modes it is a push, then a pull.
        other = self.create(asynchronous(), name="n")
        self.assertEqual([other.push_pull({"x": numpy.ones(4, "float32")}, 0)[:2] for _ in range(2)], [("contained", 1), ("contained", 2)])

    def test_a_bounded_model_refuses_a_stale_push(self):
        model = self.create(bounded(staleness=1))
        start, one = model.wait(), {"x": numpy.ones(4, "float32")}
        self.assertEqual([model.push(one, start) for _ in range(3)], [("contained", start + 1), ("contained", start + 2), ("stale", start + 2)])
        numpy.testing.assert_array_equal(model.pull().tensors["x"], 2)

    def test_timeouts_are_numbers_of_seconds(self):
        store, model = self.new_store(), self.create(asynchronous())
        one = {"x": numpy.ones(4, "float32")}
        calls = (lambda timeout: model.wait(timeout=timeout), lambda timeout: model.push(one, 0, timeout=timeout),
                 lambda timeout: model.pull(timeout=timeout), lambda timeout: model.push_pull(one, 0, timeout=timeout),
                 lambda timeout: sluice.torch.outer.DiLoCo(network(), store, every=1, name="n", quorum=1, timeout=timeout),
                 lambda timeout: sluice.torch.outer.AsyncSGD(network(), store, name="n", timeout=timeout),
                 lambda timeout: sluice.torch.outer.Publisher(store, "n", network(), timeout=timeout))
        for call in calls:
            self.assertRaisesRegex(TypeError, r"timeout is datetime.timedelta\(seconds=5\); expected a number of seconds", call, timedelta(seconds=5))
            self.assertRaisesRegex(ValueError, "timeout is -1 s; expected 0 or more", call, -1)
            self.assertRaisesRegex(ValueError, "timeout is nan s; expected 0 or more", call, math.nan)
        self.assertRaises(sluice.Error, store.model, "n")  # nothing was created

    def test_watch_and_close(self):
        model = self.create(asynchronous())
        start = model.wait()
        with self.assertRaisesRegex(sluice.Timeout, f"model 'm' did not reach version {start + 1}"):
            model.wait(start + 1, timeout=0.02)
        watched = model.watch(start)
        version = self.in_threads(lambda: next(watched), lambda: model.push({"x": numpy.ones(4, "float32")}, start))[0]
        self.assertEqual(version, start + 1)
        waits, error = threading.Event(), []

        def wait_for_more():
            waits.set()
            try:
                model.wait(version + 1, math.inf)
            except sluice.Closed as closed:
                error.append(closed)

        waiter = threading.Thread(target=wait_for_more)
        waiter.start()
        waits.wait(DEADLINE_S)
        self.store.close()
        waiter.join(DEADLINE_S)
        self.assertEqual(len(error), 1)
        for call in (model.wait, self.store.list, lambda: self.store.model("m")):
            with self.assertRaisesRegex(sluice.Closed, "the store is closed"):
                call()

    def test_close_in_a_signal_handler(self):
        model = self.create(asynchronous())
        self.addCleanup(signal.signal, signal.SIGALRM, signal.signal(signal.SIGALRM, lambda number, frame: self.store.close()))
        signal.setitimer(signal.ITIMER_REAL, 0.2)
        with self.assertRaisesRegex(sluice.Closed, "the store is closed"):
            model.wait(model.wait() + 1)
        self.store.close()

    def test_mappings_that_make_arrays_at_each_access(self):
        expected = {name: numpy.full(300_000, value, "float32") for name, value in (("a", 1), ("b", 2))}
        numpy.savez(self.folder / "arrays.npz", **expected)
        with numpy.load(self.folder / "arrays.npz") as arrays:
            model = self.store.create("m", arrays, mode=asynchronous(), rule=ADD)
            model.push(arrays, model.wait())
        for name, values in model.pull().tensors.items():
            numpy.testing.assert_array_equal(values, 2 * expected[name])

    def test_a_restored_model_continues_with_its_momentum(self):
        model, path = self.create(sync(1), nesterov(0.7, 0.9)), self.folder / "m.safetensors"
        gradient = {"x": numpy.array([1, -2, 3, 0.1], "float32")}
        version = model.push(gradient, model.wait()).version
        self.assertEqual(model.snapshot(path), version)
        after = model.pull().tensors["x"]
        model.push(gradient, version)
        expected = model.pull()
        self.store.delete("m")
        restored = self.store.restore(model.specification, path)
        self.assertEqual((restored.is_creator, restored.wait()), (True, version))
        numpy.testing.assert_array_equal(restored.pull().tensors["x"], after)
        restored.push(gradient, version)
        self.assertEqual(restored.pull().version, expected.version)
        numpy.testing.assert_array_equal(restored.pull().tensors["x"], expected.tensors["x"])

    def test_arguments(self):
        model = self.create(asynchronous(), x=numpy.zeros(4, "float32"), y=numpy.zeros((2, 1), "float16"))
        good = {"x": numpy.zeros(4, "float32"), "y": numpy.zeros((2, 1), "float16")}
        read_only = numpy.zeros(4, "float32")
        read_only.flags.writeable = False
        for kind, text, changed in ((TypeError, "tensor 'x' is float64; expected float32, float16, bfloat16", {"x": numpy.zeros(4)}),
                                    (TypeError, "tensor 'x' is float16; the model has float32", {"x": numpy.zeros(4, "float16")}),
                                    (ValueError, r"tensor 'x' has shape \(5,\); the model has \(4,\)", {"x": numpy.zeros(5, "float32")}),
                                    (ValueError, "tensor 'x' is not contiguous", {"x": numpy.zeros(8, "float32")[::2]}),
                                    (ValueError, "the model has no tensor 'z'", {"z": numpy.zeros(4, "float32")})):
            with self.assertRaisesRegex(kind, text):
                model.push({**good, **changed}, 0)
        with self.assertRaisesRegex(ValueError, "there is no array for tensor 'y'"):
            model.push({"x": good["x"]}, 0)
        with self.assertRaisesRegex(ValueError, "tensor 'x' is read-only"):
            model.pull({**good, "x": read_only})
        with self.assertRaisesRegex(ValueError, "wire_dtype is 'int4'; expected 'f32', 'f16', 'bf16', 'mxfp8', 'int8'"):
            model.push(good, 0, wire_dtype="int4")
        with self.assertRaisesRegex(sluice.InvalidArgument, "deltas and tensors have the same memory for tensor \"x\""):
            model.push_pull(good, 0, into=good)
        with self.assertRaises(sluice.InvalidArgument):
            self.create({"kind": "sync", "quorum": 0, "grace_ms": 0}, name="n")
        with self.assertRaises(sluice.Error):
            self.store.model("unknown")

    def test_a_child_of_fork_cannot_use_the_store(self):
        printed = subprocess.run([sys.executable, "-B", "-c", CHILD, self.address], capture_output=True, text=True, timeout=DEADLINE_S, check=False,
                                 env=variables())
        self.assertEqual(printed.stdout, "the store belongs to the parent process; open a new one after fork()\nTrue\n", printed.stderr)

    def test_a_reducer_without_state_is_named(self):
        with self.assertRaisesRegex(sluice.Unsupported, "keeps no models; start it with --state"):
            Store(self.start_reducer()[1])


class Status(StoreTest):
    def test_the_status_counts_the_work_of_a_model(self):
        model = self.create(bounded(staleness=1), x=numpy.zeros(64, "float32"))
        start, one = model.wait(), {"x": numpy.ones(64, "float32")}
        for _ in range(3):
            model.push(one, start)
        model.pull()
        status = self.status(self.address)
        (found,) = status["models"]
        expected = {"name": "m", "mode": "bounded", "rule": "add", "version": start + 2, "shards": 1, "owned": 1, "copied": 0, "leads": True, "steps": 2,
                    "failed_steps": 0, "pushes": {"contained": 2, "stale": 1}, "pulls": 1, "delta_bytes": 3 * 256, "pull_bytes": 256, "copy_bytes": 0, "staged": 1,
                    "staged_bytes": 256, "memory_bytes": 11 * 256}
        self.assertEqual({key: found[key] for key in expected}, expected)
        files = sum(file.stat().st_size for file in (self.folder / "state").glob("model-*/*"))
        self.assertEqual(found["disk_bytes"], files)
        self.assertNotIn("unavailable", found)
        self.assertLess(found["step_age_ms"], 1000 * status["uptime_seconds"])
        self.assertEqual((status["store"]["models"], status["store"]["memory"]["reserved_bytes"]), (1, 11 * 256))
        self.assertGreater(status["store"]["clients"], 0)
        self.assertRegex(self.run_sluice("top", "--once", "--interval", "100ms", "--reducers", self.address).stdout, rf"\nm +bounded +1 +{start + 2} ")
        self.store.delete("m")
        self.store.close()
        until("the model and its clients are gone", lambda: (status := self.status(self.address))["models"] == [] and status["store"]["clients"] == 0)

    def test_a_job_that_uses_models_only_ends_when_its_clients_have_left(self):
        reducer, address = self.start_reducer("--state", self.folder / "job", "--mode", "job", "--expected-workers", "2", "--arrival-timeout", "0",
                                              "--idle-timeout", "500ms")
        with Store(address) as store:
            model = store.create("m", {"x": numpy.zeros(4, "float32")}, mode=asynchronous(), rule=ADD)
            model.push({"x": numpy.ones(4, "float32")}, model.wait())
            until("an idle job would have ended", lambda: reducer.ended() or self.status(address)["uptime_seconds"] > 1.5)
            self.assertFalse(reducer.ended(), reducer.stderr())
        self.assertEqual(reducer.wait(), 0, reducer.stderr())
        self.assertIn("job finished: 0 of 2 expected ranks joined, and all sessions and connections of models have ended", reducer.stderr())


class Training(StoreTest):
    def test_diloco_makes_the_outer_steps_of_torch(self):
        networks, reference = [network(), network()], network()
        outer = torch.optim.SGD(reference.parameters(), lr=0.7, momentum=0.9, nesterov=True)
        workers = [sluice.torch.outer.DiLoCo(each, self.new_store(), every=2, name="m", quorum=2) for each in networks]

        def train(module, worker, seed):
            inner = torch.optim.SGD(module.parameters(), lr=0.1)
            for step in range(2):
                module.zero_grad()
                backward(module, seed + step)
                inner.step()
                if worker is not None:
                    pushed = worker.step()
                    self.assertEqual(pushed is None, step == 0)

        for round_ in range(2):
            self.in_threads(*(lambda each=each, worker=worker, seed=seed: train(each, worker, 100 * round_ + seed)
                              for each, worker, seed in zip(networks, workers, (1, 10))))
            changes = []
            for seed in (1, 10):
                local = network()
                local.load_state_dict({**local.state_dict(), **dict(reference.named_parameters())})
                train(local, None, 100 * round_ + seed)
                changes.append([old.detach() - new.detach() for old, new in zip(reference.parameters(), local.parameters())])
            for parameter, first, second in zip(reference.parameters(), *changes):
                parameter.grad = (first + second) / 2
            outer.step()
            self.assertTrue(torch.equal(*map(values_of, networks)))
            torch.testing.assert_close(values_of(networks[0]), values_of(reference))
        self.assertEqual([worker.outcomes["contained"] for worker in workers], [2, 2])
        # One that starts later has the current version at once.
        late = network()
        self.assertEqual(sluice.torch.outer.DiLoCo(late, self.new_store(), every=2, name="m", quorum=2).version, workers[0].version)
        self.assertTrue(torch.equal(values_of(late), values_of(networks[0])))

    def test_a_push_that_timed_out_counts_once(self):
        networks = [network(), network()]
        start = values_of(networks[0])
        first, second = (sluice.torch.outer.DiLoCo(each, self.new_store(), every=1, name="m", quorum=2, timeout=timeout)
                         for each, timeout in zip(networks, (0.1, None)))

        def change(value):
            with torch.no_grad():
                for parameter in networks[0].parameters():
                    parameter.add_(value)

        def repeat():
            while True:
                change(100)  # after the push, so that it does not count
                with suppress(sluice.Timeout):
                    return first.step()

        change(1)
        self.assertRaises(sluice.Timeout, first.step)
        self.assertEqual(self.in_threads(repeat, second.sync), [("contained", first.version)] * 2)
        for each in networks:
            torch.testing.assert_close(values_of(each), start + 0.7 * 1.9 / 2)

    def test_a_push_that_ctrl_c_interrupted_counts_at_most_once(self):
        module = network()
        worker = sluice.torch.outer.AsyncSGD(module, self.store, name="m", learning_rate=1.0)
        start, push_pull = worker.version, worker.model.push_pull

        def interrupted(*arguments, **options):
            push_pull(*arguments, **options)
            raise KeyboardInterrupt

        backward(module, 1)
        with mock.patch.object(worker.model, "push_pull", interrupted), self.assertRaises(KeyboardInterrupt):
            worker.step()
        self.assertEqual(worker.sync(), ("late", start + 1))
        backward(module, 2)
        self.assertEqual(worker.step(), ("contained", start + 2))

    def test_changes_that_are_not_finite_are_not_pushed(self):
        module = network()
        start = values_of(module)
        worker = sluice.torch.outer.DiLoCo(module, self.store, every=1, name="m", quorum=1)
        for _ in range(2):
            with torch.no_grad():
                module[0].bias[0] = math.inf
            with self.assertRaisesRegex(ValueError, "tensor '0.bias' has values, or changes, that are not finite in f32; not pushed"):
                worker.step()
        worker.load()
        self.assertTrue(torch.equal(values_of(module), start))
        self.assertEqual(worker.step().outcome, "contained")

    def test_async_sgd_steps_with_the_mean_gradient(self):
        module, reference = network(), network()
        worker = sluice.torch.outer.AsyncSGD(module, self.store, name="m", learning_rate=0.25, every=2, staleness=0)
        optimizer = torch.optim.SGD(reference.parameters(), lr=0.25)
        for seed in (1, 2):
            backward(module, seed)
            pushed = worker.step()
            backward(reference, seed)
        self.assertEqual(pushed, ("contained", worker.version))
        for parameter in reference.parameters():
            parameter.grad /= 2
        optimizer.step()
        torch.testing.assert_close(values_of(module), values_of(reference))
        # Another worker's step makes the next push stale. It does not count, and the worker has the current version then.
        other_network = network()
        other = sluice.torch.outer.AsyncSGD(other_network, self.new_store(), name="m", learning_rate=0.25, every=1, staleness=0)
        backward(other_network, 3)
        self.assertEqual(other.step().outcome, "contained")
        for seed in (4, 5):
            backward(module, seed)
            pushed = worker.step()
        self.assertEqual((pushed.outcome, worker.outcomes), ("stale", {"contained": 1, "late": 0, "stale": 1}))
        self.assertTrue(torch.equal(values_of(module), values_of(other_network)))

    def test_subscribers_get_the_weights_that_are_published(self):
        module, seen, arrived = network(torch.bfloat16), [], threading.Condition()
        publisher = sluice.torch.outer.Publisher(self.store, "m", module)
        reader = network(torch.bfloat16)

        def load(version, tensors):
            with arrived:
                self.assertFalse(reader.load_state_dict(tensors, strict=False).unexpected_keys)
                seen.append(version)
                arrived.notify_all()

        def wait_for(version):
            with arrived:
                self.assertTrue(arrived.wait_for(lambda: version in seen, DEADLINE_S))

        with sluice.torch.outer.Subscriber(self.new_store(), "m", load):
            for value in (0.1, -7e4, 3.0):
                with torch.no_grad():
                    for parameter in module.parameters():
                        parameter.add_(value)
                    module[1].running_mean.fill_(value)
                wait_for(publisher.publish())
                for name, tensor in reader.state_dict().items():
                    self.assertTrue(torch.equal(tensor, module.state_dict()[name]), name)
            again = sluice.torch.outer.Publisher(self.new_store(), "m", module)
            module.float()  # other memory
            with torch.no_grad():
                module[0].bias.add_(1)
            wait_for(again.publish())
            self.assertTrue(torch.equal(reader[0].bias, module[0].bias.bfloat16()))
            self.assertEqual(seen, sorted(seen))
            with torch.no_grad():
                module[0].bias[0] = math.nan
            with self.assertRaisesRegex(ValueError, "tensor '0.bias' has values, or changes, that are not finite in f32"):
                again.publish()

    def test_an_exception_of_the_function_ends_the_subscription(self):
        sluice.torch.outer.Publisher(self.store, "m", network())
        with self.assertWarnsRegex(RuntimeWarning, "the subscription to model 'm' has ended: KeyError: 'absent'"):
            subscriber = sluice.torch.outer.Subscriber(self.store, "m", lambda version, tensors: {}["absent"])
            subscriber._thread.join(DEADLINE_S)
        self.assertIsInstance(subscriber.error(), KeyError)
        self.assertRaises(KeyError, subscriber.close)

    def test_other_types_are_refused(self):
        with self.assertRaisesRegex(TypeError, "tensor '0.weight' is torch.float64; expected float32, float16 or bfloat16"):
            sluice.torch.outer.DiLoCo(network(torch.float64), self.store, every=1, name="m", quorum=1)
        with self.assertRaisesRegex(ValueError, "every is 0; expected 1 or more"):
            sluice.torch.outer.DiLoCo(network(), self.store, every=0, name="m", quorum=1)


if __name__ == "__main__":
    main()
