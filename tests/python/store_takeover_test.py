"""Three reducers with etcd keep a model while workers push, readers pull, and one reducer after the other is killed.

Every push adds 1 to every element, so each pull shows whether it mixes versions, and the last one how many pushes count. SLUICE_TEST_KILLS: number of kills
(default: 3)."""

import math
import os
import random
import shutil
import signal
import subprocess
import threading
import time
from pathlib import Path
from unittest import mock

import numpy
import sluice
import sluice.store
from package_test_bed import PackageTest, main
from sluice_process import until
from tls_test import Authority

from capabilities import needs  # noqa: E402, I001: sluice_process says where it is

KILLS = int(os.environ.get("SLUICE_TEST_KILLS", "3"))
ELEMENTS = 200_003
WORKERS = 3


@needs("program:etcd")
class Takeover(PackageTest):
    def setUp(self):
        super().setUp()
        self.security, self.variables, self.keys = self.secure()
        self.etcd = self.start_etcd()
        self.reducers = [self.start_store(i, self.reserve_port()) for i in range(3)]

    def secure(self):
        """Returns options and variables of the reducers, and options of stores."""
        return (), {}, {}

    def start_etcd(self):
        """Returns the URL of an etcd of this test."""
        client, peer = (f"http://127.0.0.1:{self.reserve_port()}" for _ in range(2))
        self.etcd_process = process = subprocess.Popen([shutil.which("etcd"), "--data-dir", str(self.folder / "etcd"), "--listen-client-urls", client, "--advertise-client-urls", client,
                                    "--listen-peer-urls", peer, "--initial-advertise-peer-urls", peer, "--initial-cluster", f"default={peer}"],
                                   stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        self.addCleanup(process.wait)
        self.addCleanup(process.kill)
        return client.replace("http", "etcd")

    def start_store(self, index, port):
        return self.start_reducer("--state", self.folder / f"state{index}", "--coordinator", self.etcd, *self.security, port=port, env=self.variables)

    def addresses(self):
        return ",".join(address for _, address in self.reducers)

    def open(self, **options):
        store = sluice.store.Store(self.addresses(), **{"timeout_ms": 60_000, **self.keys, **options})
        self.addCleanup(store.close)
        return store

    def settled(self, model):
        """Whether all shards have an owner that runs, and a copy."""
        return self.no_shard_is_at(model, 0)

    def no_shard_is_at(self, model, store):
        try:
            return all(store not in (shard["store"], shard["copy"]) for shard in model.describe()["shards"])
        except sluice.Error:
            return False

    def test_the_status_tells_why_no_step_is_made(self):
        model = self.open().create("m", {"x": numpy.zeros(4, "float32")}, mode=sluice.store.asynchronous(), rule=sluice.store.add())
        start, outcomes = model.wait(), []

        def reasons():
            return [found["unavailable"] for _, address in self.reducers for found in self.status(address)["models"] if "unavailable" in found]

        self.assertEqual(reasons(), [])
        self.etcd_process.send_signal(signal.SIGSTOP)
        push = threading.Thread(target=lambda: outcomes.append(model.push({"x": numpy.ones(4, "float32")}, start)))
        push.start()
        until("the leader gives a reason", lambda: bool(reasons()))
        self.assertRegex(reasons()[0], "the coordinator")
        self.etcd_process.send_signal(signal.SIGCONT)
        push.join()
        self.assertEqual(outcomes, [("contained", start + 1)])
        until("pushes are accepted again", lambda: not reasons())

        def is_settled():
            status = [self.status(address)["models"][0] for _, address in self.reducers]
            return {found["version"] for found in status} == {start + 1} and sum(found["leads"] for found in status) == 1

        until("all reducers have the version, and one leads", is_settled)

    def check_version(self, pulled):
        x = numpy.asarray(pulled.tensors["x"])
        self.assertEqual((x.min(), x.max()), (pulled.version, pulled.version))

    def test_nothing_acknowledged_is_lost(self):
        def step(mine, version):
            pushed = mine.push({"x": numpy.ones(ELEMENTS, "float32")}, base=0)
            return pushed.outcome, pushed.version

        pushes, version = self.count_pushes(sluice.store.asynchronous(), step)
        self.assertEqual(version, sum(pushes))

    def test_nothing_is_lost_if_pulls_follow_the_step(self):
        def step(mine, version):
            pulled = mine.push_pull({"x": numpy.ones(ELEMENTS, "float32")}, version)
            self.check_version(pulled)
            return pulled.outcome, pulled.version

        pushes, version = self.count_pushes(sluice.store.sync(WORKERS), step)
        self.assertEqual([version] * WORKERS, pushes)

    def push_to_new_model(self, **options):
        """A model has shards at all reducers, so that its leader connects to the others."""
        model = self.open(**options).create(os.urandom(4).hex(), {"x": numpy.zeros(ELEMENTS, "float32")}, mode=sluice.store.asynchronous(), rule=sluice.store.add())
        self.assertEqual(model.push({"x": numpy.ones(ELEMENTS, "float32")}, model.wait()).outcome, "contained")

    def reload(self, index):
        reducer, _ = self.reducers[index]
        before = reducer.stderr().count("configuration reloaded")
        reducer.signal(signal.SIGHUP)
        until("the reducer has reread its files", lambda: reducer.stderr().count("configuration reloaded") > before)

    def count_pushes(self, mode, step):
        """Returns the acknowledged pushes of each worker, and the last version."""
        main_store = self.open()
        model = main_store.create("m", {"x": numpy.zeros(ELEMENTS, "float32")}, mode=mode, rule=sluice.store.add())
        stop, failures, acknowledged, longest = threading.Event(), [], [0] * WORKERS, [0.0] * WORKERS
        last_step = [math.inf]  # of each worker, so that none waits for another in a step that does not come

        def guarded(work):
            def run(*arguments):
                try:
                    work(*arguments)
                except BaseException as error:
                    failures.append(error)
                    stop.set()
            return run

        @guarded
        def push(worker):
            mine, version, last = self.open(worker=worker + 1).model("m"), 0, time.monotonic()
            while acknowledged[worker] < last_step[0] and not failures:
                outcome, version = step(mine, version)
                acknowledged[worker] += 1
                now = time.monotonic()
                longest[worker], last = max(longest[worker], now - last), now
                self.assertEqual(outcome, "contained")

        @guarded
        def pull():
            mine, last = self.open().model("m"), 0
            while not stop.is_set():
                pulled = mine.pull()
                self.check_version(pulled)
                self.assertGreaterEqual(pulled.version, last)
                last = pulled.version

        threads = [threading.Thread(target=push, args=(worker,)) for worker in range(WORKERS)] + [threading.Thread(target=pull)]
        for thread in threads:
            thread.start()
        choose = random.Random(7)
        try:
            for _ in range(KILLS):
                until("all shards have a copy", lambda: stop.is_set() or self.settled(model))
                seen = list(acknowledged)  # a step that is made from now on supplies new copies first
                until("each worker's pushes are acknowledged", lambda seen=seen: stop.is_set() or all(now > before + 1 for now, before in zip(acknowledged, seen)))
                if stop.is_set():
                    break
                index = choose.randrange(3)
                if os.environ.get("SLUICE_TEST_TRACE"):
                    print(time.monotonic(), "kill", index, sum(acknowledged), max(longest), flush=True)
                self.reducers[index][0].process.kill()
                self.reducers[index][0].process.wait()
                if choose.random() < 0.5:  # sometimes it is back before the others take over
                    killed = int((self.folder / f"state{index}" / "store-id").read_text())
                    until("others take over", lambda killed=killed: stop.is_set() or self.no_shard_is_at(model, killed))
                self.reducers[index] = self.start_store(index, self.reducers[index][1].rpartition(":")[2])
        finally:
            last_step[0] = max(acknowledged) + 2
            stop.set()
            for thread in threads:
                thread.join(90)
        if failures:
            raise failures[0]
        final = self.open().model("m").pull()
        print(f"{KILLS} kills, {sum(acknowledged)} pushes, longest time between two acknowledgements {max(longest):.2f} s", flush=True)
        self.check_version(final)
        return acknowledged, final.version


class TakeoverOverTls(Takeover):
    test_nothing_acknowledged_is_lost = test_the_status_tells_why_no_step_is_made = None  # the other class has them

    def secure(self):
        if not Path(os.environ["SLUICE_LIBRARY"]).with_name("libsluice_tls.so").exists():
            self.skipTest("needs tls-library: libsluice_tls.so was not built")
        key = self.make_key()
        self.enterContext(mock.patch.dict(os.environ, SLUICE_TLS="require"))
        return ("--key-file", key, "--tls", "on"), {"SLUICE_TLS": "require"}, {"key_file": key}

    def test_a_new_pool_key_makes_reducers_refuse_nobody(self):
        key, old, new = self.keys.pop("key_file"), self.folder / "old.token", self.folder / "new.token"
        self.run_sluice("keygen", "--key-file", key, "--job", "default", "--out", old)
        self.run_sluice("keygen", "--out", self.folder / "new.key")
        self.run_sluice("keygen", "--key-file", self.folder / "new.key", "--job", "default", "--out", new)
        both = (self.folder / "new.key").read_text() + key.read_text()
        for text, token in ((both, old), (both.splitlines()[0], new)):
            key.write_text(text)
            for index in range(3):
                self.reload(index)
                self.push_to_new_model(token_file=token)
        for _, address in self.reducers:
            self.assertNotIn("unauthenticated", self.status(address, "--token-file", new, "--job", "default")["refused"])


@needs("program:openssl")
class TakeoverWithCertificates(Takeover):
    test_nothing_acknowledged_is_lost = test_nothing_is_lost_if_pulls_follow_the_step = test_the_status_tells_why_no_step_is_made = None

    def secure(self):
        self.install("old")
        return (("--tls", "require", "--tls-cert", self.certificate, "--tls-client-ca", self.authority),
                {"SLUICE_TLS_CA": str(self.authority)}, {"tls": "require", "tls_ca": self.authority, "tls_cert": self.certificate})

    def install(self, name):
        authority = Authority(self.folder, name)
        self.authority, self.certificate = self.folder / "ca.pem", self.folder / "reducer.pem"
        shutil.copy(authority.certificate("reducer", "IP:127.0.0.1"), self.certificate)
        shutil.copy(authority.ca, self.authority)

    def test_reducers_connect_to_each_other_with_reread_certificates(self):
        self.push_to_new_model()
        self.install("new")
        for index in range(3):
            self.reload(index)
        self.push_to_new_model()


if __name__ == "__main__":
    main()
