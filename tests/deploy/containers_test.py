"""The images, built by deploy/docker/build.sh with buildah from the packages of this build, and run: what they say of themselves, a reducer that
sums and drains, an installer that copies, an image that is everything."""

import json
import os
import shutil
import signal
import subprocess
from pathlib import Path

import deploy_case
from built_packages import base_root, packages
from deploy_case import DEADLINE_S, DeployTest, accepts, environment, free_port, main, program, until, version

import capabilities  # noqa: E402: deploy_case says where it is
import probes  # noqa: E402

BASE = "localhost/sluice-test-base"
IMAGES = ["reducer", "plugin", "auto"]


class Containers(DeployTest):
    @classmethod
    def setUpClass(cls):
        capabilities.need("buildah")
        debs = packages()
        root = base_root(debs)
        cls.store = deploy_case.BUILD / "deploy" / "containers"
        cls.addClassCleanup(cls.remove_store)
        cls.remove_store()
        cls.store.mkdir()
        # A store of its own: nothing of this is left, and nothing of the machine's is touched.
        (cls.store / "policy.json").write_text('{"default": [{"type": "insecureAcceptAnything"}]}')
        cls.environment = environment(probes.storage_settings(cls.store, probes.storage_driver()[0]))
        made = cls.run_tool("buildah", "from", "scratch")
        cls.run_tool("buildah", "add", "--quiet", made, root, "/")
        cls.run_tool("buildah", "commit", "--quiet", "--disable-compression", made, BASE)
        cls.run_tool("buildah", "rm", made)
        # build.sh takes docker where it is: this test is of buildah.
        tools = cls.store / "tools"
        tools.mkdir()
        for folder in (Path(folder) for folder in cls.environment["PATH"].split(":")):
            for tool in folder.iterdir() if folder.is_dir() else []:
                if tool.name != "docker" and not (tools / tool.name).exists():
                    (tools / tool.name).symlink_to(tool)
        cls.run_tool(deploy_case.ROOT / "deploy/docker/build.sh", "--base", BASE, "--tag", "test", "--packages", next(iter(debs.values())).parent, *IMAGES,
                     timeout=240, env=cls.environment | {"PATH": str(tools)})

    @classmethod
    def remove_store(cls):
        graph = cls.store / "graph" / "overlay"
        mounted = [line.split()[4] for line in Path("/proc/self/mountinfo").read_text().splitlines()]
        for point in sorted((point for point in mounted if point.startswith(f"{graph}")), reverse=True):
            subprocess.run(["umount", "-l", point], timeout=DEADLINE_S, check=False)
        shutil.rmtree(cls.store, ignore_errors=True)

    @classmethod
    def run_tool(cls, *words, timeout=120, env=None):
        done = subprocess.run([*map(str, words)], stdout=subprocess.PIPE, stderr=subprocess.PIPE, stdin=subprocess.DEVNULL, text=True, timeout=timeout,
                              check=False, env=env or cls.environment)
        if done.returncode != 0:
            raise AssertionError(f"{words}\n{done.stdout[-4000:]}{done.stderr[-4000:]}")
        return done.stdout.strip()

    def container(self, image):
        name = self.run_tool("buildah", "from", "--pull-never", f"localhost/sluice-{image}:test")
        self.addCleanup(self.run_tool, "buildah", "rm", name)
        return name

    def config(self, image):
        return json.loads(self.run_tool("buildah", "inspect", "--type", "image", f"localhost/sluice-{image}:test"))["Docker"]["config"]

    def test_what_the_images_say_of_themselves(self):
        entrypoints = {"reducer": ["/usr/bin/sluice", "reducer"], "plugin": ["/opt/sluice/bin/sluice-install"], "auto": ["/usr/bin/sluice", "auto"]}
        for image in IMAGES:
            with self.subTest(image):
                config = self.config(image)
                self.assertEqual((config["User"], config["StopSignal"], config["Entrypoint"]), ("65532:65532", "SIGTERM", entrypoints[image]))
                self.assertEqual(sorted(config.get("ExposedPorts", {})), [] if image == "plugin" else ["7470/tcp", "9470/tcp"])
                labels = {key.removeprefix("org.opencontainers.image."): value for key, value in config["Labels"].items()}
                self.assertEqual((labels["title"], labels["version"], labels["licenses"]), (f"sluice-{image}", version(), "Apache-2.0 AND CC-BY-4.0"))
                self.assertNotIn(labels["revision"], ("", "unknown"))
                told = {word for word in config["Env"] if word.startswith("SLUICE_")}
                self.assertEqual(told, {"reducer": {"SLUICE_LISTEN=*:7470", "SLUICE_HTTP_LISTEN=*:9470"}, "plugin": {"SLUICE_INSTALL_DIR=/target"},
                                        # It would go before the port that the platform gave a reducer.
                                        "auto": {"SLUICE_HTTP_LISTEN=*:9470"}}[image])
        self.assertEqual(self.config("reducer")["Healthcheck"]["Test"], ["CMD", "/usr/bin/sluice", "check", "health"])

    def test_packages_of_two_versions_are_refused(self):
        for version_of in ("0.1.0", "0.2.0"):
            (self.folder / f"sluice-reducer_{version_of}_amd64.deb").touch()
        done = self.command(deploy_case.ROOT / "deploy/docker/build.sh", "--packages", self.folder, "reducer", expect=64)
        self.assertIn("2 packages sluice-reducer", done.stdout)

    def test_a_reducer_serves_the_host_and_drains(self):
        port, http = free_port(), free_port()
        container = self.container("reducer")
        log = self.folder / "log"
        with open(log, "wb") as out:
            # buildah runs a command, not the entrypoint.
            running = subprocess.Popen(["buildah", "run", "--env", f"SLUICE_LISTEN=127.0.0.1:{port}", "--env", f"SLUICE_HTTP_LISTEN=127.0.0.1:{http}",
                                        container, "--", *self.config("reducer")["Entrypoint"]],
                                       stdout=out, stderr=out, stdin=subprocess.DEVNULL, env=self.environment)
        self.addCleanup(running.wait)
        self.addCleanup(running.kill)
        until("the reducer listens", lambda: accepts(port) or running.poll() is not None)
        self.assertIsNone(running.poll(), log.read_text())
        reducer = until("its process", lambda: self.below(running.pid, "sluice"))
        self.addCleanup(self.kill, reducer)
        status = Path(f"/proc/{reducer}/status").read_text()
        self.assertIn("Uid:\t65532\t65532\t65532\t65532\n", status)
        told = self.command(program(), "bench", "allreduce", "-b", "64K", "-e", "1M", "-f", "4", "--workers", "2", "--connect", f"127.0.0.1:{port}").stdout
        self.assertRegex(told, r"# Out of bounds values : 0 OK")
        self.run_tool("buildah", "run", container, "--", *self.config("reducer")["Healthcheck"]["Test"][1:], "--http", f"127.0.0.1:{http}")
        os.kill(reducer, getattr(signal, self.config("reducer")["StopSignal"]))
        self.assertEqual(running.wait(DEADLINE_S), 0, log.read_text())
        self.assertIn("1 sessions completed, 0 failed", log.read_text())

    def test_off_loopback_it_wants_a_key(self):
        container = self.container("reducer")
        done = self.command("buildah", "run", container, "--", *self.config("reducer")["Entrypoint"], expect=None, env=self.environment)
        self.assertEqual(done.returncode, 64, done.stdout)
        self.assertIn("key", done.stdout)

    def test_the_installer_copies_what_a_training_container_needs(self):
        container = self.container("plugin")
        target = self.folder / "target"
        target.mkdir(mode=0o777)
        target.chmod(0o777)
        self.folder.chmod(0o755)
        for _ in range(2):  # again over what is there
            self.run_tool("buildah", "run", "--volume", f"{target}:/target", container, "--", *self.config("plugin")["Entrypoint"])
        self.assertEqual(sorted(str(path.relative_to(target)) for path in target.rglob("*") if path.is_file()),
                         ["bin/sluice", "bin/sluice-install", "etc/nccl.conf", "lib/libnccl-net-sluice.so", "lib/libsluice_tls.so"])
        self.assertEqual((target / "etc/nccl.conf").read_text(), (deploy_case.ROOT / "config/nccl.conf").read_text())
        # The copy sums on a reducer, as a job's node would let it.
        port_file = self.folder / "port"
        reducer = subprocess.Popen([program(), "reducer", "--listen", "127.0.0.1:0", "--port-file", port_file], stderr=subprocess.DEVNULL, env=environment())
        self.addCleanup(reducer.wait)
        self.addCleanup(reducer.kill)
        until("a reducer listens", port_file.exists)
        told = self.command(program(), "check", "plugin", target / "lib/libnccl-net-sluice.so",
                            env=environment({"SLUICE_REDUCERS": f"127.0.0.1:{port_file.read_text().strip()}", "NCCL_COLLNET_ENABLE": "1"})).stdout
        self.assertRegex(told, r"reduction +\d+ floats, right")
        self.run_tool("buildah", "run", container, "--", "sluice", "--version")

    def test_the_image_for_every_node_has_all_of_it(self):
        container = self.container("auto")
        self.assertTrue(self.run_tool("buildah", "run", container, "--", "sluice", "--version").startswith(f"sluice {version()}\n"))
        self.assertIn("NCCL_NET_PLUGIN=sluice", self.run_tool("buildah", "run", container, "--", "cat", "/etc/nccl.conf"))
        self.run_tool("buildah", "run", container, "--", "test", "-f", "/usr/lib/libnccl-net-sluice.so", "-a", "-x", "/usr/bin/sluice-gpu-bench")

    def auto(self, *words, environment=None, options=(), expect=0):
        """The entrypoint of sluice-auto with these words, in what a platform sets; both outputs, whose lines buildah
        copies in no order."""
        container = self.container("auto")
        done = self.command("buildah", "run", *options, *self.set(environment or {}), container, "--", *self.config("auto")["Entrypoint"], *words,
                            expect=expect, env=self.environment)
        return done.stdout

    @staticmethod
    def set(environment):
        return [word for name, value in environment.items() for word in ("--env", f"{name}={value}")]

    def key(self):
        """Options that put a pool's key where the container's user can read it."""
        path = self.folder / "pool.key"
        self.command(program(), "keygen", "--out", path)
        os.chown(path, 65532, 65532)
        self.folder.chmod(0o755)
        return ["--volume", f"{self.folder}:/keys:ro", "--env", "SLUICE_KEY_FILE=/keys/pool.key"]

    def test_started_by_vertex_it_is_a_reducer_or_a_worker(self):
        port, http = free_port(), free_port()

        def cluster_spec(task):
            return {"CLUSTER_SPEC": json.dumps({"cluster": {"workerpool0": ["w:2222"], "workerpool2": [f"r0:{port + 1}", f"r1:{port}"]},
                                                "environment": "cloud", "task": task}), "SLUICE_HTTP_LISTEN": f"127.0.0.1:{http}"}

        reducer, worker = ({"type": f"workerpool{pool}", "index": index} for pool, index in ((2, 1), (0, 0)))
        self.assertIn(f"r0:{port + 1},r1:{port}", self.auto("--", "sh", "-c", "echo $SLUICE_REDUCERS", environment=cluster_spec(worker)).splitlines())
        self.assertIn("--key-file", self.auto("--", "false", environment=cluster_spec(reducer), expect=64))
        container = self.container("auto")
        log = self.folder / "log"
        with open(log, "wb") as out:
            running = subprocess.Popen(["buildah", "run", *self.key(), *self.set(cluster_spec(reducer)), container, "--", *self.config("auto")["Entrypoint"],
                                        "--lanes", "1", "--", "false"], stdout=out, stderr=out, stdin=subprocess.DEVNULL, env=self.environment)
        self.addCleanup(running.wait)
        self.addCleanup(running.kill)
        until("it listens at its own entry's port", lambda: accepts(port), running)
        process = until("its process", lambda: self.below(running.pid, "sluice"))
        self.addCleanup(self.kill, process)
        told = self.command(program(), "status", "--reducers", f"127.0.0.1:{port}", "--key-file", self.folder / "pool.key").stdout
        self.assertEqual(json.loads(told)[0]["status"]["lanes"], 1)
        os.kill(process, signal.SIGTERM)
        self.assertEqual(running.wait(DEADLINE_S), 0, log.read_text())

    def test_started_by_sagemaker_it_is_a_reducer_of_the_job_or_a_worker(self):
        groups = [{"instance_group_name": "worker", "hosts": ["algo-1", "algo-2"]}, {"instance_group_name": "reducer", "hosts": ["algo-3"]}]

        def started(host, *words, **how):
            at = self.folder / host
            at.mkdir()
            (at / "resourceconfig.json").write_text(json.dumps({"current_host": host, "hosts": ["algo-1", "algo-2", "algo-3"], "instance_groups": groups}))
            return self.auto(*words, options=["--volume", f"{at}:/opt/ml/input/config:ro"], environment={"SLUICE_HTTP_LISTEN": ""}, **how)

        self.folder.chmod(0o755)
        self.assertIn("algo-3:7470", started("algo-2", "--", "sh", "-c", "echo $SLUICE_REDUCERS").splitlines())
        # A job's reducer: it waits for both workers, and ends when they do not come.
        said = started("algo-3", "--listen", "127.0.0.1:0", "--lanes", "1", "--arrival-timeout", "300ms", "--", "false", expect=75)
        self.assertIn("of 2 expected ranks", said)

    def test_started_by_kubernetes_it_is_the_reducer_of_its_name_or_a_worker(self):
        names = {"SLUICE_REDUCER_POD_PATTERN": "pool-%d.pool", "SLUICE_REDUCER_COUNT": "2", "SLUICE_HTTP_LISTEN": ""}
        self.assertIn("pool-0.pool:7470,pool-1.pool:7470",
                      self.auto("--", "sh", "-c", "echo $SLUICE_REDUCERS", environment=names, options=["--hostname", "train-0"]).splitlines())
        said = self.auto("--mode", "job", "--expected-workers", "1", "--listen", "127.0.0.1:0", "--lanes", "1", "--arrival-timeout", "300ms", "--", "false",
                         environment=names, options=["--hostname", "pool-1"], expect=75)
        self.assertIn("role reducer 1, 2 reducers", said)

    def below(self, pid, name):
        """The process of that name that `pid` or a child of its has started."""
        for child in [int(child) for task in Path(f"/proc/{pid}/task").glob("*/children") for child in task.read_text().split()]:
            if Path(f"/proc/{child}/comm").read_text().strip() == name:
                return child
            if found := self.below(child, name):
                return found
        return None

    def kill(self, pid):
        try:
            os.kill(pid, signal.SIGKILL)
        except ProcessLookupError:
            pass


if __name__ == "__main__":
    main()
