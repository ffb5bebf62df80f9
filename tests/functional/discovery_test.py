"""`sluice discover` and `sluice auto` as a platform's entry point runs them, and reducers that exit with their job."""

import json
import signal
import socket

import sluice_process
from sluice_process import SluiceTest, main, until

JOB = ("bench", "allreduce", "-b", "4K", "-e", "4K", "-n", "5")


def cluster_spec(pool, index, reducers=("127.0.0.1:2222",), workers=2):
    names = [f"10.0.0.{n + 1}:2222" for n in range(workers)]
    return json.dumps({"cluster": {"workerpool0": names[:1], "workerpool1": names[1:], "workerpool2": list(reducers)}, "environment": "cloud",
                       "task": {"type": f"workerpool{pool}", "index": index}})


class Discover(SluiceTest):
    def discover(self, *arguments, env=None, expect=0):
        return self.run_sluice("discover", *arguments, env=env, expect=expect)

    def test_json_has_the_keys_that_scripts_read(self):
        done = self.discover(env={"CLUSTER_SPEC": cluster_spec(2, 1, ["r0:2222", "r1:2223"]), "SLURM_JOB_ID": "77"})
        self.assertEqual(json.loads(done.stdout), {"role": "reducer", "index": 1, "reducers": ["r0:2222", "r1:2223"], "workers": 2,
                                                   "source": "cluster-spec", "job": "77"})
        self.assertEqual(done.stderr.count("\n"), 1, done.stderr)
        for text in ("role reducer 1", "source cluster-spec", "skipped: static: SLUICE_REDUCERS is not set"):
            self.assertIn(text, done.stderr)

    def test_other_programs_can_read_env_and_hosts(self):
        env = {"SLUICE_REDUCERS": "a,b:7471*2,[fd00::2]", "SLUICE_JOB_ID": "train-7"}
        self.assertEqual(self.discover("--format", "env", env=env).stdout, "SLUICE_REDUCERS=a:7470,b:7471*2,[fd00::2]:7470\nSLUICE_JOB_ID=train-7\n")
        hosts = self.write("hosts", self.discover("--format", "hosts", env=env).stdout)
        again = self.discover("--source", "file", env={"SLUICE_REDUCERS": f"@{hosts}"})
        self.assertEqual(json.loads(again.stdout)["reducers"], ["a:7470", "b:7471*2", "[fd00::2]:7470"])

    def test_the_format_option_has_no_variable(self):
        for value in ("text", "sbatch", "env"):
            env = {"SLUICE_REDUCERS": "a", "SLUICE_FORMAT": value}
            self.assertEqual(json.loads(self.discover(env=env).stdout)["reducers"], ["a:7470"])
            self.assertIn("reducers", self.run_sluice("plan", "--workers", "8", "--worker-gbps", "100", "--provider", "gcp", env=env).stdout)

    def test_a_host_name_cannot_inject_a_command(self):
        for host, error in (("$(touch${IFS}pwned)", "not allowed in a host name"), ("a'b", "found a quote"), ("a&b", "not allowed in a host name")):
            spec = json.dumps({"cluster": {"workerpool2": [f"{host}:2222"]}})
            done = self.discover("--format", "env", env={"CLUSTER_SPEC": spec}, expect=78)
            self.assertEqual(done.stdout, "")
            self.assertIn(error, done.stderr)

    def test_a_sagemaker_file(self):
        config = self.write("resourceconfig.json", json.dumps({"current_host": "algo-1", "hosts": ["algo-1", "algo-2"], "instance_groups": [
            {"instance_group_name": "gpu", "hosts": ["algo-1"]}, {"instance_group_name": "reducer", "hosts": ["algo-2"]}]}))
        found = json.loads(self.discover(env={"SLUICE_SM_RESOURCE_CONFIG": str(config)}).stdout)
        self.assertEqual((found["role"], found["reducers"], found["source"]), ("worker", ["algo-2:7470"], "sagemaker"))

    def test_an_invalid_configuration_is_exit_78_and_one_line(self):
        for env, text in (({"CLUSTER_SPEC": "{"}, "CLUSTER_SPEC:1:2: "), ({"SLUICE_REDUCERS": "a:x"}, "SLUICE_REDUCERS: item 1"),
                          ({"SLUICE_REDUCERS": f"@{self.folder}/none"}, "does not exist"), ({"SLUICE_DISCOVERY": "tea"}, "SLUICE_DISCOVERY=tea"),
                          ({"SLUICE_SLURM_NODELIST": "a[1-999999999]"}, "column 3: more than"),
                          ({"SLUICE_REDUCER_SERVICE": "r", "SLUICE_DNS_SERVER": "dns.example"}, "SLUICE_DNS_SERVER: ")):
            with self.subTest(text):
                done = self.expect_error(78, text, "discover", env=env)
                self.assertEqual(done.stderr.count("\n"), 1, done.stderr)

    def test_an_unknown_source_is_a_usage_error(self):
        self.assertIn("--source: bogus: expected one of auto, static", self.discover("--source", "bogus", expect=64).stderr)
        self.discover("--source", "", expect=64)
        self.discover(env={"SLUICE_DISCOVERY": "bogus"}, expect=78)

    def test_no_result_is_exit_69_with_every_reason(self):
        done = self.discover(expect=69)
        for text in ("static: SLUICE_REDUCERS is not set", "cluster-spec: CLUSTER_SPEC is not set", "slurm: "):
            self.assertIn(text, done.stderr)
        self.assertIn("discovery is disabled", self.discover(env={"SLUICE_DISCOVERY": "none", "SLUICE_REDUCERS": "a"}, expect=69).stderr)


class Auto(SluiceTest):
    def test_a_worker_runs_the_command_with_the_reducers(self):
        show = ("--", "sh", "-c", 'echo "$SLUICE_REDUCERS|$SLUICE_JOB_ID|$1"; exit 7', "sh", "--lanes")
        done = self.run_sluice("auto", *show, env={"CLUSTER_SPEC": cluster_spec(1, 0, ["r0:2222", "r1:2222"]), "SLURM_JOB_ID": "9"}, expect=7)
        self.assertEqual(done.stdout, "r0:2222,r1:2222|9|--lanes\n")
        self.assertRegex(done.stderr, r"role worker 1, 2 reducers, 2 workers, source cluster-spec, job 9")

    def test_variables_of_the_user_are_kept(self):
        done = self.run_sluice("auto", "--", "sh", "-c", 'echo "$SLUICE_REDUCERS|$SLUICE_JOB_ID"',
                               env={"SLUICE_REDUCERS": "@" + str(self.write("pool", "a\n")), "SLUICE_JOB_ID": "mine", "SLURM_JOB_ID": "9"})
        self.assertEqual(done.stdout, f"@{self.folder}/pool|mine\n")

    def test_the_command_also_runs_without_reducers(self):
        done = self.run_sluice("auto", "--", "sh", "-c", 'echo "[$SLUICE_REDUCERS]"')
        self.assertEqual(done.stdout, "[]\n")
        self.assertIn("running sh without reducers", done.stderr)
        self.run_sluice("auto", "--", "true", env={"SLUICE_DISCOVERY": "slurm"}, expect=69)

    def test_a_reducer_listens_on_the_port_of_its_entry(self):
        port = self.reserve_port()
        env = {"CLUSTER_SPEC": cluster_spec(2, 1, ["127.0.0.1:1", f"127.0.0.1:{port}"])}
        key = self.make_key()
        reducer = self.start("auto", "--lanes", "1", "--", "false", env=env | {"SLUICE_KEY_FILE": str(key)})
        until("the reducer listens", lambda: "listens on" in reducer.stderr() or reducer.ended())
        self.assertIn(f"listens on *:{port}", reducer.stderr())
        self.assertIn("role reducer 1, 2 reducers, 2 workers, source cluster-spec", reducer.stderr())
        self.assertEqual(self.status(f"127.0.0.1:{port}", "--key-file", key)["lanes"], 1)
        self.expect_drained(reducer)

    def test_the_users_address_has_precedence(self):
        port_file = self.folder / "port"
        env = {"CLUSTER_SPEC": cluster_spec(2, 0, ["127.0.0.1:1"])}
        for options, more in ((("--listen", "127.0.0.1:0"), {}), ((), {"SLUICE_LISTEN": "127.0.0.1:0"})):
            port_file.unlink(missing_ok=True)
            reducer = self.start("auto", "--port-file", port_file, *options, "--", "false", env=env | more)
            until("the reducer writes its port", lambda r=reducer: port_file.exists() or r.ended())
            self.assertIn("listens on 127.0.0.1:", reducer.stderr())
            reducer.end()

    def test_the_error_without_a_key_names_the_options(self):
        done = self.run_sluice("auto", "--", "false", env={"CLUSTER_SPEC": cluster_spec(2, 0)}, expect=64)
        for text in ("--key-file", "keygen", "--insecure"):
            self.assertIn(text, done.stderr)

    def test_exit_codes_match_those_of_a_shell(self):
        text_file = self.write("text", "not a program\n")
        self.assertIn("no-such-command", self.run_sluice("auto", "--", "no-such-command", expect=127).stderr)
        self.run_sluice("auto", "--", text_file, expect=126)
        for arguments in ((), ("--",), ("true",), ("--nothing", "--", "true"), ("--lanes", "many", "--", "true")):
            with self.subTest(arguments):
                self.run_sluice("auto", *arguments, expect=64)
        self.run_sluice("auto", "--", "true", env={"CLUSTER_SPEC": "{"}, expect=78)
        self.assertIn("REDUCER OPTIONS", self.run_sluice("auto", "--help").stdout)

    def test_a_file_and_variables_have_precedence_over_the_platform(self):
        env = {"SLURM_HET_SIZE": "2", "SLUICE_SLURM_GROUP": "1", "SLURM_JOB_NODELIST_HET_GROUP_0": "gpu[1-2]",
               "SLURM_JOB_NODELIST_HET_GROUP_1": "localhost", "SLURMD_NODENAME": "localhost"}

        def found(*options, more=None):
            lines = self.run_sluice("auto", *options, "--print-config", "--", "false", env=env | (more or {})).stdout.splitlines()
            parts = {line.split(" = ")[0]: line.split(" = ")[1].split("  # ") for line in lines if " = " in line}
            return [(parts[key][0].strip(), parts[key][1]) for key in ("listen", "mode", "expected_workers")]
        self.assertEqual(found(), [('"*:7470"', "default"), ('"job"', "default"), ("2", "default")])
        path = self.write("reducer.toml", 'listen = "127.0.0.1:7"\nmode = "service"\nexpected_workers = 5\n')
        self.assertEqual(found("--config", path), [('"127.0.0.1:7"', f"{path}:1:10"), ('"service"', f"{path}:2:8"), ("5", f"{path}:3:20")])
        self.assertEqual(found("--config", path, "--mode", "job", more={"SLUICE_LISTEN": "[::1]:8"}),
                         [('"[::1]:8"', "env SLUICE_LISTEN"), ('"job"', "cli"), ("5", f"{path}:3:20")])

    def test_print_and_check_work_on_every_host(self):
        ran = self.folder / "ran"
        path = self.write("reducer.toml", "lanes = 9999\n")
        good = self.write("good.toml", "lanes = 9\ninsecure = true\n")
        for env in ({"CLUSTER_SPEC": cluster_spec(1, 0)}, {"CLUSTER_SPEC": cluster_spec(2, 0)}, {}):
            with self.subTest(env):
                self.assertIn("lanes = 9 ", self.run_sluice("auto", "--config", good, "--print-config", "--", "touch", ran, env=env).stdout)
                self.assertEqual(self.run_sluice("auto", "--config", good, "--check-config", "--", "touch", ran, env=env).stdout, "configuration is valid\n")
                self.assertIn(f"{path}:1:9: lanes = 9999", self.run_sluice("auto", "--config", path, "--check-config", "--", "touch", ran, env=env, expect=78).stderr)
                sample = self.run_sluice("auto", "--print-config=sample", "--", "touch", ran, env=env).stdout
                self.assertEqual(sample, self.run_sluice("reducer", "--print-config=sample").stdout)
                help_text = self.run_sluice("auto", "--insecure", "--help", "--", "touch", ran, env=env)
                self.assertIn("--expected-workers", help_text.stdout)
                self.assertEqual(help_text.stderr, "")
        self.assertFalse(ran.exists())

    def test_log_options_apply_before_and_after_auto_and_in_the_file(self):
        worker = {"CLUSTER_SPEC": cluster_spec(1, 0)}
        for options in (("auto", "--log-level", "error"), ("--log-level", "error", "auto"), ("--log-level", "debug", "auto", "--log-level", "error")):
            self.assertEqual(self.run_sluice(*options, "--", "true", env=worker).stderr, "", options)
        self.assertIn("role worker", json.loads(self.run_sluice("auto", "--log-format", "json", "--", "true", env=worker).stderr)["msg"])
        path = self.write("reducer.toml", 'log_format = "json"\n')
        reducer, _ = self.start_server(["auto"], "--config", path, "--", "false", env={"CLUSTER_SPEC": cluster_spec(2, 0)})
        messages = [json.loads(line)["msg"] for line in reducer.stderr().splitlines()]
        self.assertIn("role reducer 0", messages[0])
        self.assertFalse([message for message in messages if "SLUICE_LANES" in message])

    def test_lanes_in_the_environment_cause_a_warning(self):
        env = {"CLUSTER_SPEC": cluster_spec(2, 0), "SLUICE_LANES": "1"}
        for options, times in (((), 1), (("--lanes", "1"), 0)):
            reducer, _ = self.start_server(["auto"], *options, "--", "false", env=env)
            self.assertEqual(reducer.stderr().count("SLUICE_LANES"), times, reducer.stderr())

    def test_signals_end_it_while_the_network_is_silent(self):
        """Process 1 of a container ignores signals without a handler. The exit code shows that a handler ran."""
        for number in (signal.SIGTERM, signal.SIGINT):
            with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as silent:
                silent.bind(("127.0.0.1", 0))
                silent.settimeout(sluice_process.DEADLINE_S)
                env = {"SLUICE_REDUCER_SERVICE": "reducers.example", "SLUICE_DNS_SERVER": f"127.0.0.1:{silent.getsockname()[1]}", "SLUICE_DISCOVERY_TIMEOUT": "60s"}
                running = self.start("auto", "--", "true", env=env)
                silent.recv(512)
                running.signal(number)
                self.assertEqual(running.wait(), 128 + number, running.stderr())

    def test_a_complete_slurm_job(self):
        """A reducer that exits with the job, and the job's workers, started by the same entry point."""
        port = self.reserve_port()
        group = {"SLUICE_SLURM_GROUP": "1", "SLURM_HET_SIZE": "2", "SLURM_JOB_NODELIST_HET_GROUP_0": "gpu[1-2]", "SLURM_JOB_NODELIST_HET_GROUP_1": "localhost"}
        reducer = self.start("auto", "--listen", f"127.0.0.1:{port}", "--idle-timeout", "300ms", "--", "false", env=group | {"SLURMD_NODENAME": "localhost"})
        until("the reducer listens", lambda: "listens on" in reducer.stderr() or reducer.ended())
        self.run_sluice("auto", "--", sluice_process.PROGRAM, *JOB, "--workers", "2", "--connect", f"127.0.0.1:{port}", env=group | {"SLURMD_NODENAME": "gpu1"})
        self.assertEqual(reducer.wait(), 0, reducer.stderr())
        self.assertIn("job finished: 2 of 2 expected ranks joined", reducer.stderr())


class Job(SluiceTest):
    def test_the_reducer_exits_after_the_expected_ranks(self):
        reducer, address = self.start_reducer("--mode", "job", "--expected-workers", "2", "--idle-timeout", "4s", "--arrival-timeout", "0")
        # Two sessions of one rank each do not count: the expected ranks must be present at the same time.
        for _ in range(2):
            self.run_sluice(*JOB, "--workers", "1", "--connect", address)
        self.assertFalse(reducer.ended(), reducer.stderr())
        # The second communicator of a job connects a moment later and is served.
        for _ in range(2):
            self.run_sluice(*JOB, "--workers", "2", "--connect", address)
        self.assertEqual(reducer.wait(), 0, reducer.stderr())
        self.assertIn("4 sessions completed, 0 failed", reducer.stderr())
        self.assertIn("2 of 2 expected ranks", reducer.stderr())

    def test_a_running_session_is_not_cut_off(self):
        reducer, address = self.start_reducer("--mode", "job", "--expected-workers", "5", "--idle-timeout", "200ms", "--arrival-timeout", "4s")
        job = self.start(*JOB, "-N", "0", "--workers", "2", "--connect", address)
        until("the job has run for longer than the arrival timeout", lambda: self.status(address)["uptime_seconds"] > 5 or reducer.ended())
        self.assertFalse(reducer.ended() or job.ended(), reducer.stderr())
        job.signal(signal.SIGINT)
        job.wait()
        self.assertEqual(reducer.wait(), 75, reducer.stderr())
        self.assertIn("job did not start: at most 2 of 5 expected ranks joined", reducer.stderr())

    def test_no_rank_connects(self):
        reducer, _ = self.start_reducer("--mode", "job", "--expected-workers", "1", "--arrival-timeout", "300ms")
        self.assertEqual(reducer.wait(), 75)
        self.assertIn("job did not start", reducer.stderr())

    def test_a_service_ignores_the_job_options(self):
        reducer, address = self.start_reducer("--expected-workers", "1", "--arrival-timeout", "100ms", "--idle-timeout", "100ms")
        until("time has passed", lambda: self.status(address)["uptime_seconds"] > 0.6)
        self.assertFalse(reducer.ended())
        self.expect_drained(reducer)

    def test_sigterm_before_the_job_is_a_drain(self):
        reducer, _ = self.start_reducer("--mode", "job", "--expected-workers", "1")
        self.expect_drained(reducer)

    def test_job_mode_without_a_number_does_not_start(self):
        self.assertIn("--expected-workers", self.run_sluice("reducer", "--mode", "job", expect=64).stderr)


if __name__ == "__main__":
    main()
