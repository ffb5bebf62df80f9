"""Builds the container images with deploy/docker/build.sh and buildah from the packages of this build, and runs them.

Tests the metadata of the images, a reducer that serves sessions and drains, the installer of the plugin, and the image for all
roles.
"""

import contextlib
import json
import os
import shutil
import signal
import subprocess
from pathlib import Path

import deploy_case
from built_packages import base_root, packages
from deploy_case import DEADLINE_S, DeployTest, accepts, environment, main, program, until, version

import capabilities  # noqa: E402: deploy_case extends sys.path
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
        # A private store: the test leaves no images and does not change the store of the machine.
        (cls.store / "policy.json").write_text('{"default": [{"type": "insecureAcceptAnything"}]}')
        cls.environment = environment(probes.storage_settings(cls.store, probes.storage_driver()[0]))
        container = cls.run_tool("buildah", "from", "scratch")
        cls.run_tool("buildah", "add", "--quiet", container, root, "/")
        cls.run_tool("buildah", "commit", "--quiet", "--disable-compression", container, BASE)
        cls.run_tool("buildah", "rm", container)
        # Clients without a daemon, which build.sh must pass over.
        tools = cls.store / "tools"
        tools.mkdir()
        for name in ("docker", "podman"):
            (tools / name).write_text("#!/bin/sh\necho 'Cannot connect to the daemon' >&2\nexit 1\n")
            (tools / name).chmod(0o755)
        cls.environment["PATH"] = f"{tools}:{cls.environment['PATH']}"
        cls.run_tool(deploy_case.ROOT / "deploy/docker/build.sh", "--base", BASE, "--tag", "test", "--packages", next(iter(debs.values())).parent, *IMAGES,
                     timeout=240)

    @classmethod
    def remove_store(cls):
        graph = cls.store / "graph" / "overlay"
        mounted = [line.split()[4] for line in Path("/proc/self/mountinfo").read_text().splitlines()]
        for point in sorted((point for point in mounted if point.startswith(f"{graph}")), reverse=True):
            subprocess.run(["umount", "-l", point], timeout=DEADLINE_S, check=False)
        shutil.rmtree(cls.store, ignore_errors=True)

    @classmethod
    def run_tool(cls, *command, timeout=120, env=None):
        done = subprocess.run([*map(str, command)], stdout=subprocess.PIPE, stderr=subprocess.PIPE, stdin=subprocess.DEVNULL, text=True, timeout=timeout,
                              check=False, env=env or cls.environment)
        if done.returncode != 0:
            raise AssertionError(f"{command}\n{done.stdout[-4000:]}{done.stderr[-4000:]}")
        return done.stdout.strip()

    def container(self, image):
        name = self.run_tool("buildah", "from", "--pull-never", f"localhost/sluice-{image}:test")
        self.addCleanup(self.run_tool, "buildah", "rm", name)
        return name

    def config(self, image):
        return json.loads(self.run_tool("buildah", "inspect", "--type", "image", f"localhost/sluice-{image}:test"))["Docker"]["config"]

    def test_metadata_of_the_images(self):
        entrypoints = {"reducer": ["/usr/bin/sluice", "reducer"], "plugin": ["/opt/sluice/bin/sluice-install"], "auto": ["/usr/bin/sluice", "auto"]}
        for image in IMAGES:
            with self.subTest(image):
                config = self.config(image)
                self.assertEqual((config["User"], config["StopSignal"], config["Entrypoint"]), ("65532:65532", "SIGTERM", entrypoints[image]))
                self.assertEqual(sorted(config.get("ExposedPorts", {})), [] if image == "plugin" else ["7470/tcp", "9470/tcp"])
                labels = {key.removeprefix("org.opencontainers.image."): value for key, value in config["Labels"].items()}
                self.assertEqual((labels["title"], labels["version"], labels["licenses"]), (f"sluice-{image}", version(), "Apache-2.0 AND CC-BY-4.0"))
                self.assertNotIn(labels["revision"], ("", "unknown"))
                published = (deploy_case.ROOT / "deploy/project.env").read_text()
                for label, variable in (("authors", "MAINTAINER"), ("url", "URL"), ("source", "URL")):
                    self.assertIn(f'PROJECT_{variable}="{labels[label]}"\n', published)
                self.assertEqual(labels["base.name"], BASE)
                variables = {entry for entry in config["Env"] if entry.startswith("SLUICE_")}
                self.assertEqual(variables, {"reducer": {"SLUICE_LISTEN=*:7470", "SLUICE_HTTP_LISTEN=*:9470"}, "plugin": {"SLUICE_INSTALL_DIR=/target"},
                                             # No SLUICE_LISTEN: it would override the port that the platform assigns.
                                             "auto": {"SLUICE_HTTP_LISTEN=*:9470"}}[image])
        self.assertEqual(self.config("reducer")["Healthcheck"]["Test"], ["CMD", "/usr/bin/sluice", "check", "health"])

    def test_a_tool_that_does_not_work_is_refused(self):
        build = deploy_case.ROOT / "deploy/docker/build.sh"
        self.assertIn("--tool docker: it is not installed, or its daemon does not answer", self.command(build, "--tool", "docker", expect=69, env=self.environment).stdout)
        self.assertIn("expected docker, podman or buildah", self.command(build, "--tool", "kaniko", expect=64, env=self.environment).stdout)

    def test_packages_of_two_versions_are_refused(self):
        for version_of in ("0.1.0", "0.2.0"):
            (self.folder / f"sluice-reducer_{version_of}_amd64.deb").touch()
        done = self.command(deploy_case.ROOT / "deploy/docker/build.sh", "--packages", self.folder, "reducer", expect=64)
        self.assertIn("2 packages sluice-reducer", done.stdout)

    def test_a_reducer_serves_the_host_and_drains(self):
        port, http = self.reserve_port(), self.reserve_port()
        container = self.container("reducer")
        log = self.folder / "log"
        # buildah runs a command, not the entrypoint.
        running = self.start_process(["buildah", "run", "--env", f"SLUICE_LISTEN=127.0.0.1:{port}", "--env", f"SLUICE_HTTP_LISTEN=127.0.0.1:{http}",
                                      container, "--", *self.config("reducer")["Entrypoint"]], log, self.environment)
        until("the reducer listens", lambda: accepts(port) or running.poll() is not None)
        self.assertIsNone(running.poll(), log.read_text())
        reducer = until("the process of the reducer exists", lambda: self.find_descendant(running.pid, "sluice"))
        self.addCleanup(self.kill, reducer)
        status = Path(f"/proc/{reducer}/status").read_text()
        self.assertIn("Uid:\t65532\t65532\t65532\t65532\n", status)
        output = self.command(program(), "bench", "allreduce", "-b", "64K", "-e", "1M", "-f", "4", "--workers", "2", "--connect", f"127.0.0.1:{port}").stdout
        self.assertRegex(output, r"# Out of bounds values : 0 OK")
        self.run_tool("buildah", "run", container, "--", *self.config("reducer")["Healthcheck"]["Test"][1:], "--http", f"127.0.0.1:{http}")
        os.kill(reducer, getattr(signal, self.config("reducer")["StopSignal"]))
        self.expect_exit(running, log)
        self.assertIn("1 sessions completed, 0 failed", log.read_text())

    def test_reducer_without_a_key_refuses_other_addresses_than_loopback(self):
        container = self.container("reducer")
        done = self.command("buildah", "run", container, "--", *self.config("reducer")["Entrypoint"], expect=None, env=self.environment)
        self.assertEqual(done.returncode, 64, done.stdout)
        self.assertIn("key", done.stdout)

    def test_installer_copies_the_files_of_a_training_container(self):
        container = self.container("plugin")
        target = self.folder / "target"
        target.mkdir(mode=0o777)
        target.chmod(0o777)
        self.folder.chmod(0o755)
        for _ in range(2):  # the second run overwrites the files of the first
            self.run_tool("buildah", "run", "--volume", f"{target}:/target", container, "--", *self.config("plugin")["Entrypoint"])
        self.assertEqual(sorted(str(path.relative_to(target)) for path in target.rglob("*") if path.is_file()),
                         ["bin/sluice", "bin/sluice-install", "etc/nccl.conf", "lib/libnccl-net-sluice.so", "lib/librccl-net-sluice.so", "lib/librccl-net.so",
                          "lib/libsluice_tls.so"])
        # RCCL finds the plugin by its default name.
        self.assertEqual((target / "lib/librccl-net.so").readlink(), Path("libnccl-net-sluice.so"))
        self.assertEqual((target / "etc/nccl.conf").read_text(), (deploy_case.ROOT / "config/nccl.conf").read_text())
        # The copied plugin works with a reducer.
        _, address = self.start_reducer()
        output = self.command(program(), "check", "plugin", target / "lib/libnccl-net-sluice.so",
                              env=environment({"SLUICE_REDUCERS": address, "NCCL_COLLNET_ENABLE": "1"})).stdout
        self.assertRegex(output, r"reduction +\d+ floats, correct")
        self.run_tool("buildah", "run", container, "--", "sluice", "--version")

    def test_image_auto_contains_all_programs_and_libraries(self):
        container = self.container("auto")
        self.assertTrue(self.run_tool("buildah", "run", container, "--", "sluice", "--version").startswith(f"sluice {version()}\n"))
        self.assertIn("NCCL_NET_PLUGIN=sluice", self.run_tool("buildah", "run", container, "--", "cat", "/etc/nccl.conf"))
        self.run_tool("buildah", "run", container, "--", "test", "-f", "/usr/lib/libnccl-net-sluice.so", "-a", "-x", "/usr/bin/sluice-gpu-bench")

    def auto(self, *arguments, environment=None, options=(), expect=0):
        """Runs the entrypoint of sluice-auto with these arguments and the variables of a platform. Returns stdout and stderr,
        whose lines buildah mixes in any order."""
        container = self.container("auto")
        done = self.command("buildah", "run", *options, *self.env_options(environment or {}), container, "--", *self.config("auto")["Entrypoint"], *arguments,
                            expect=expect, env=self.environment)
        return done.stdout

    @staticmethod
    def env_options(environment):
        return [option for name, value in environment.items() for option in ("--env", f"{name}={value}")]

    def key_options(self):
        """Creates a pool key. Returns options of buildah that make it readable in the container."""
        path = self.folder / "pool.key"
        self.command(program(), "keygen", "--out", path)
        os.chown(path, 65532, 65532)
        self.folder.chmod(0o755)
        return ["--volume", f"{self.folder}:/keys:ro", "--env", "SLUICE_KEY_FILE=/keys/pool.key"]

    def test_vertex_variables_select_reducer_or_worker(self):
        port, http = self.reserve_port(), self.reserve_port()

        def cluster_spec(task):
            return {"CLUSTER_SPEC": json.dumps({"cluster": {"workerpool0": ["w:2222"], "workerpool2": [f"r0:{port + 1}", f"r1:{port}"]},
                                                "environment": "cloud", "task": task}), "SLUICE_HTTP_LISTEN": f"127.0.0.1:{http}"}

        reducer, worker = ({"type": f"workerpool{pool}", "index": index} for pool, index in ((2, 1), (0, 0)))
        self.assertIn(f"r0:{port + 1},r1:{port}", self.auto("--", "sh", "-c", "echo $SLUICE_REDUCERS", environment=cluster_spec(worker)).splitlines())
        self.assertIn("--key-file", self.auto("--", "false", environment=cluster_spec(reducer), expect=64))
        container = self.container("auto")
        log = self.folder / "log"
        running = self.start_process(["buildah", "run", *self.key_options(), *self.env_options(cluster_spec(reducer)), container, "--",
                                      *self.config("auto")["Entrypoint"], "--lanes", "1", "--", "false"], log, self.environment)
        until("the reducer listens on the port of its entry", lambda: accepts(port), running)
        process = until("the process of the reducer exists", lambda: self.find_descendant(running.pid, "sluice"))
        self.addCleanup(self.kill, process)
        output = self.command(program(), "status", "--reducers", f"127.0.0.1:{port}", "--key-file", self.folder / "pool.key").stdout
        self.assertEqual(json.loads(output)[0]["status"]["lanes"], 1)
        os.kill(process, signal.SIGTERM)
        self.expect_exit(running, log)

    def test_sagemaker_configuration_selects_reducer_or_worker(self):
        groups = [{"instance_group_name": "worker", "hosts": ["algo-1", "algo-2"]}, {"instance_group_name": "reducer", "hosts": ["algo-3"]}]

        def run_as(host, *arguments, **how):
            folder = self.folder / host
            folder.mkdir()
            (folder / "resourceconfig.json").write_text(json.dumps({"current_host": host, "hosts": ["algo-1", "algo-2", "algo-3"], "instance_groups": groups}))
            return self.auto(*arguments, options=["--volume", f"{folder}:/opt/ml/input/config:ro"], environment={"SLUICE_HTTP_LISTEN": ""}, **how)

        self.folder.chmod(0o755)
        self.assertIn("algo-3:7470", run_as("algo-2", "--", "sh", "-c", "echo $SLUICE_REDUCERS").splitlines())
        # A reducer of a job waits for both workers and exits if they do not connect.
        output = run_as("algo-3", "--listen", "127.0.0.1:0", "--lanes", "1", "--arrival-timeout", "300ms", "--", "false", expect=75)
        self.assertIn("of 2 expected ranks", output)

    def test_kubernetes_pod_name_selects_reducer_or_worker(self):
        names = {"SLUICE_REDUCER_POD_PATTERN": "pool-%d.pool", "SLUICE_REDUCER_COUNT": "2", "SLUICE_HTTP_LISTEN": ""}
        self.assertIn("pool-0.pool:7470,pool-1.pool:7470",
                      self.auto("--", "sh", "-c", "echo $SLUICE_REDUCERS", environment=names, options=["--hostname", "train-0"]).splitlines())
        output = self.auto("--mode", "job", "--expected-workers", "1", "--listen", "127.0.0.1:0", "--lanes", "1", "--arrival-timeout", "300ms", "--", "false",
                           environment=names, options=["--hostname", "pool-1"], expect=75)
        self.assertIn("role reducer 1, 2 reducers", output)

    def find_descendant(self, pid, name):
        """Returns the descendant process of `pid` with this name, or None."""
        for child in [int(child) for task in Path(f"/proc/{pid}/task").glob("*/children") for child in task.read_text().split()]:
            with contextlib.suppress(OSError):  # it has just ended
                if Path(f"/proc/{child}/comm").read_text().strip() == name:
                    return child
            if found := self.find_descendant(child, name):
                return found
        return None

    def kill(self, pid):
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)


if __name__ == "__main__":
    main()
