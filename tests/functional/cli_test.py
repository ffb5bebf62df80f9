"""The interface of `sluice` to its users and scripts: exit codes, error messages, help and variables."""

import hashlib
import hmac
import os
import stat
import subprocess

import sluice_process
from sluice_process import DEADLINE_S, SluiceTest, environment, main

from capabilities import need  # noqa: E402: sluice_process sets the path
from probes import private_mounts  # noqa: E402


class CommandLine(SluiceTest):
    def expect_one_line(self, done, *texts):
        self.assertEqual(done.stderr.count("\n"), 1, done.stderr)
        for text in texts:
            self.assertIn(text, done.stderr)

    def test_an_invalid_list_names_the_variable_that_has_it(self):
        for command in (["status"], ["check", "pool"], ["store", "list"], ["bench", "allreduce", "--workers", "2"]):
            self.expect_error(78, 'sluice: SLUICE_REDUCERS=a,b:0: item 2, "b:0": ', *command, env={"SLUICE_REDUCERS": "a,b:0"})
        self.expect_error(64, 'sluice: --reducers a,b:0: item 2, "b:0": ', "status", "--reducers", "a,b:0")

    def test_only_the_rank_that_writes_results_checks_their_file(self):
        job = ("bench", "allreduce", "--workers", "2", "--json", self.folder / "none/results.json")
        self.expect_error(64, f"sluice: --json {job[-1]}: cannot write to {self.folder}/none: No such file or directory", *job)
        self.expect_error(64, "cannot write to", "demo", "digits", "--single", *job[-2:])
        address = f"127.0.0.1:{self.reserve_port()}"
        self.expect_error(69, "rank 1 cannot join the session", *job, "--rank", "1", "--session", "0badcafe" * 4, "--connect", address, "--join-timeout", "1s")

    def test_version_prints_revision_protocol_compiler_and_targets(self):
        text = self.run_sluice("--version").stdout
        self.assertRegex(text, r"^sluice \d+\.\d+\.\d+\nrevision [\w.-]+\nprotocol \d+(-\d+)?\ncompiler (gcc|clang) \S+\nkernel targets of this CPU( \w+)+\n$")

    def test_help_prints_units_defaults_and_variables(self):
        text = self.run_sluice("reducer", "--help").stdout
        self.assertIn("--drain-timeout TIME=25s (Env:SLUICE_DRAIN_TIMEOUT)", text)
        self.assertIn("--max-slot SIZE=1M (Env:SLUICE_MAX_SLOT)", text)
        for command in (["bench"], ["bench", "allreduce"], ["bench", "replay"], ["bench", "star"], ["bench", "star-server"], ["bench", "reduce"], ["bench", "latency"],
                        ["bench", "link"], ["bench", "soak"], ["demo", "digits"], ["demo", "outer-steps"], ["keygen"], ["status"], ["trace", "summary"], ["bits"]):
            self.assertIn("Usage", self.run_sluice(*command, "--help").stdout)

    def test_check_plugin_reduces_once_or_reports_the_reason(self):
        _, address = self.start_reducer()
        env = {"SLUICE_REDUCERS": address, "SLUICE_IFNAME": "=lo", "SLUICE_NET": "always", "SLUICE_CONNECT_TIMEOUT": "2s"}
        text = self.run_sluice("check", "plugin", env=env).stdout
        self.assertRegex(text, r"net v5-v12, collnet v8-v12, tuner v2-v7")
        self.assertRegex(text, r"reduction +65536 floats, correct, \d+ us")
        port = self.reserve_port()
        done = self.run_sluice("check", "plugin", env=env | {"SLUICE_REDUCERS": f"127.0.0.1:{port}"}, expect=69)
        self.expect_one_line(done, str(port))
        self.expect_one_line(self.run_sluice("check", "plugin", env={"SLUICE_IFNAME": "=lo"}, expect=78), "SLUICE_REDUCERS")
        self.expect_one_line(self.run_sluice("check", "plugin", env=env | {"NCCL_NET": "IB"}, expect=78), "NCCL_NET=IB")
        self.run_sluice("check", "plugin", env=env | {"NCCL_NET": "ib", "SLUICE_NET_NAME": "IB"})
        self.expect_one_line(self.run_sluice("check", "plugin", env=env | {"NCCL_PROTO": "LL,LL128"}, expect=78), "NCCL_PROTO")
        self.expect_one_line(self.run_sluice("check", "plugin", env=env | {"NCCL_ALGO": "ring,tree"}, expect=78), "NCCL_ALGO=ring,tree excludes CollNet")
        self.assertIn("NCCL older than 2.24", self.run_sluice("check", "plugin", env=env | {"NCCL_ALGO": "ring;allreduce:collnetchain"}).stdout)
        self.expect_one_line(self.run_sluice("check", "plugin", "/lib/no-such-library.so", expect=78), "no-such-library")

    def test_install_adds_missing_settings_to_nccl_conf(self):
        conf = self.write("nccl.conf", "NCCL_DEBUG=WARN\nNCCL_COLLNET_NODE_THRESHOLD=2")
        text = self.run_sluice("install", "--nccl-conf", conf).stdout
        self.assertIn("kept NCCL_COLLNET_NODE_THRESHOLD=2; the plugin requires 3", text)
        lines = conf.read_text().splitlines()
        self.assertEqual(lines[:2], ["NCCL_DEBUG=WARN", "NCCL_COLLNET_NODE_THRESHOLD=2"])
        self.assertIn("NCCL_COLLNET_ENABLE=1", lines)
        self.assertIn("nothing to add", self.run_sluice("install", "--nccl-conf", conf).stdout)
        self.assertEqual(conf.read_text().splitlines(), lines)

    def test_install_says_added_only_after_the_write(self):
        conf = self.write("nccl.conf", "NCCL_DEBUG=WARN\n")
        (self.folder / "nccl.conf.new").mkdir()
        done = self.run_sluice("install", "--nccl-conf", conf, expect=1)
        self.assertEqual(done.stdout, "")
        self.expect_one_line(done, f"cannot write {conf}: {conf}.new exists and is not a regular file")
        self.assertEqual(conf.read_text(), "NCCL_DEBUG=WARN\n")

    def test_install_follows_a_link_and_writes_a_mounted_file_in_place(self):
        conf = self.write("real.conf", "")
        conf.chmod(0o640)
        (self.folder / "nccl.conf").symlink_to("real.conf")
        self.run_sluice("install", "--nccl-conf", self.folder / "nccl.conf")
        self.assertTrue((self.folder / "nccl.conf").is_symlink())
        self.assertIn("NCCL_NET_PLUGIN=sluice\n", conf.read_text())
        self.assertEqual(stat.S_IMODE(conf.stat().st_mode), 0o640)
        self.expect_error(1, "Is a directory", "install", "--nccl-conf", self.folder)
        self.expect_error(64, "the name of the file is empty", "install", "--nccl-conf", "")  # as of a variable that is not set
        self.assertIn("NCCL_NET_PLUGIN=sluice\n/dev/stdout: added NCCL_COLLNET_ENABLE=1\n",
                      self.run_sluice("install", "--nccl-conf", "/dev/stdout").stdout.replace("NCCL_NET_PLUGIN_REF_COUNT=1\n", "", 1))
        need("bind-mounts")
        mounted, source = self.write("mounted.conf", ""), self.write("source.conf", "")
        done = subprocess.run([*private_mounts(), "sh", "-c", 'mount --bind "$1" "$2" && "$3" install --nccl-conf "$2" && cat "$2"',
                               "sh", source, mounted, sluice_process.PROGRAM], capture_output=True, text=True, timeout=DEADLINE_S, env=environment(), check=False)
        self.assertEqual((done.returncode, done.stderr), (0, ""))
        self.assertIn("added NCCL_NET_PLUGIN=sluice", done.stdout)
        self.assertIn("NCCL_NET_PLUGIN=sluice\n", source.read_text())
        self.assertEqual([path.name for path in self.folder.glob("*.new")], [])

    def test_a_misspelled_command_names_the_nearest(self):
        for arguments, text in ((["reduce"], 'unknown command "reduce"; did you mean "reducer"?'), (["bench", "al"], 'unknown command "al"'),
                                (["bench", "allreduc", "-b", "4"], 'did you mean "allreduce"?'), (["chekc", "plugin"], 'did you mean "check"?')):
            with self.subTest(arguments):
                self.expect_one_line(self.run_sluice(*arguments, expect=64), text)
        self.expect_one_line(self.run_sluice("bench", expect=64), "subcommand is required")

    def test_results_go_to_devices_and_pipes(self):
        self.assertEqual(self.run_sluice("plan", "--workers", "4", "--worker-gbps", "100", "--reducer-gbps", "100", "--plot", "/dev/null").stderr, "")
        self.expect_error(1, "cannot write /dev/full: No space left on device", "plan", "--workers", "4", "--worker-gbps", "100", "--reducer-gbps", "100",
                          "--plot", "/dev/full")
        self.assertRegex(self.run_sluice("keygen", "--out", "/dev/stdout").stdout, r"^[0-9a-f]{64}\n$")
        text = self.run_sluice("plan", "--workers", "4", "--worker-gbps", "100", "--reducer-gbps", "100", "--plot", "/dev/stdout").stdout
        self.assertIn("</svg>", text)
        self.assertLess(text.index("reducers"), text.index("<svg"))
        fifo = self.folder / "fifo"
        os.mkfifo(fifo)
        running = self.start("plan", "--workers", "4", "--worker-gbps", "100", "--reducer-gbps", "100", "--plot", fifo)
        self.assertIn("</svg>", fifo.read_text())
        self.expect_ends([running])

    def test_a_bad_option_is_exit_64(self):
        for arguments in (["--nothing"], [], ["reducer", "--lanes", "many"], ["reducer", "--drain-timeout", "5"], ["reducer", "--idle", "tea"],
                          ["reducer", "--memory-limit", "4Q"], ["reducer", "--listen", "nowhere:port"], ["bench"],
                          ["reducer", "--max-slot", "2K"], ["reducer", "--max-slot", "8M"], ["reducer", "--heartbeat", "10us"],
                          ["reducer", "--peer-timeout", "1s", "--heartbeat", "1s"], ["reducer", "--handshake-timeout", "0s"],
                          ["reducer", "--frame-timeout", "0s"], ["reducer", "--lanes-per-session", "0"],
                          ["bench", "allreduce", "-b", "4M", "-e", "1M"], ["bench", "allreduce", "-d", "float17"],
                          ["bench", "allreduce", "--rank", "0"], ["demo", "digits", "--workers", "0"], ["status"],
                          ["status", "--reducers", "host:99999"], ["demo", "digits", "--reducers", "1025"], ["bench", "link", "--reducers", "0"],
                          ["demo", "digits", "--reducers", "host:x"]):
            with self.subTest(arguments):
                self.expect_one_line(self.run_sluice(*arguments, expect=64), "sluice: ")

    def test_a_model_needs_a_reducer(self):
        self.expect_error(64, "models are kept by reducers, but the list has none", "store", "list", "--reducers", "none")

    def test_an_option_is_no_value(self):
        for command, option, following in ((["reducer"], "--port-file", "--check-config"), (["top"], "--reducers", "--help"), (["keygen"], "--out", "--help")):
            self.expect_error(64, f"{option} needs a value; after it comes the option {following}", *command, option, following)

    def test_addresses_of_models_are_checked_before_the_start(self):
        state = ("reducer", "--check-config", "--state", self.folder / "models")
        for url in ("etcd://a;b", '"etcd://h:1"', "etcd://h:99999", "etcd://", ",", "h:1"):
            self.expect_error(78, f'coordinator "{url}": ', *state, "--coordinator", url)
        for address in ("a;b", '"h:1"', "h:99999", "http://h", "h,i", "*:1", "h:0", " ", "h\r", "\ufeffh"):
            self.assertIn(": expected HOST[:PORT]", self.expect_error(78, "--announce ", *state, "--announce", address).stderr)
        self.run_sluice(*state, "--coordinator", "etcd://h:1,[::1]:2", "--announce", "h:1")

    def test_a_non_loopback_address_without_a_key_is_rejected(self):
        self.expect_one_line(self.run_sluice("reducer", "--listen", "*:0", expect=64), "key")

    def test_a_port_in_use_is_exit_75(self):
        _, address = self.start_reducer()
        self.expect_one_line(self.run_sluice("reducer", "--listen", address, expect=75), address.split(":")[1], "in use")

    def test_a_port_in_use_is_named_before_the_models_in_use(self):
        models = ("--state", self.folder / "models")
        _, address = self.start_reducer(*models)
        self.expect_one_line(self.run_sluice("reducer", "--listen", address, *models, expect=75), address.split(":")[1], "in use")
        done = self.run_sluice("reducer", "--listen", "127.0.0.1:0", *models, expect=1)
        self.expect_one_line(done, f"--state {self.folder}/models: ", "is in use by another process")

    def test_an_unreadable_key_is_exit_78(self):
        bad = self.write("bad.key", "not a key\n")
        port = self.reserve_port()
        for path in (bad, self.folder / "missing.key"):
            for command in (["reducer", "--listen", "127.0.0.1:0"], ["status", "--reducers", f"127.0.0.1:{port}"],
                            ["bench", "allreduce", "--workers", "2"], ["demo", "digits"], ["keygen", "--job", "j"]):
                with self.subTest(command):
                    self.expect_one_line(self.run_sluice(*command, "--key-file", path, expect=78), path.name)

    def test_an_unreachable_reducer_is_exit_69(self):
        port = self.reserve_port()
        self.expect_one_line(self.run_sluice("status", "--reducers", f"127.0.0.1:{port}", expect=69), str(port))
        done = self.run_sluice("bench", "allreduce", "--workers", "1", "--connect", f"127.0.0.1:{port}", "--rank", "0", "--session",
                               "0123456789abcdef" * 2, "--connect-timeout", "2s", expect=69)
        self.expect_one_line(done, str(port))

    def test_command_line_has_precedence_over_environment_over_default(self):
        port = self.reserve_port()
        status = ("status", "--timeout", "2s")
        self.expect_error(69, str(port), *status, env={"SLUICE_REDUCERS": f"127.0.0.1:{port}"})
        done = self.run_sluice(*status, "--reducers", "127.0.0.1:1", expect=69, env={"SLUICE_REDUCERS": f"127.0.0.1:{port}"})
        self.assertNotIn(str(port), done.stderr)
        self.run_sluice("reducer", expect=78, env={"SLUICE_DRAIN_TIMEOUT": "soon"})
        reducer, address = self.start_reducer("--lanes", "1", env={"SLUICE_LANES": "3", "SLUICE_LOG_LEVEL": "error"})
        self.assertEqual(self.status(address)["lanes"], 1)
        self.assertEqual(reducer.stderr(), "")
        self.assertEqual(self.status(address)["link_rate"], 0)  # loopback

    def test_the_link_rate_is_in_the_log_and_the_status(self):
        reducer, address = self.start_reducer("--link-rate", "1.5gbit", env={"SLUICE_LINK_RATE": "25gbit"})
        self.assertEqual(self.status(address)["link_rate"], 1500000000)
        self.assertIn(", link 1500mbit, ", reducer.stderr())
        for rate in ("0", "11tbit", "25", "25g"):
            self.expect_error(64, f'--link-rate {rate}: "{rate}" ', "reducer", "--link-rate", rate)
            self.expect_error(78, f'SLUICE_LINK_RATE={rate}: "{rate}" ', "reducer", env={"SLUICE_LINK_RATE": rate})

    def test_results_that_cannot_be_written_are_exit_1(self):
        _, address = self.start_reducer()
        with open("/dev/full", "w") as full:
            for arguments in (["keygen"], ["plan", "--workers", "8", "--worker-gbps", "100", "--reducer-gbps", "100"], ["status", "--reducers", address],
                              ["top", "--once", "--interval", "100ms", "--reducers", address], ["completion", "bash"], ["man"],
                              ["reducer", "--print-config"], ["bench", "replay", "--list"]):
                with self.subTest(arguments):
                    self.expect_error(1, "sluice: cannot write to stdout: No space left on device", *arguments, stdout=full)

    def test_variables_of_another_subcommand_are_ignored(self):
        self.run_sluice("keygen", env={"SLUICE_WORKERS": "many", "SLUICE_DRAIN_TIMEOUT": "soon"})


class Keygen(SluiceTest):
    def test_a_key_is_64_digits_and_only_its_owner_can_read_it(self):
        path = self.make_key()
        self.assertRegex(path.read_text(), r"^[0-9a-f]{64}\n$")
        self.assertEqual(stat.S_IMODE(os.stat(path).st_mode), 0o600)
        self.assertNotEqual(self.run_sluice("keygen").stdout, self.run_sluice("keygen").stdout)

    def test_an_existing_file_is_kept(self):
        path = self.write("pool.key", "precious")
        self.run_sluice("keygen", "--out", path, expect=64)
        self.assertEqual(path.read_text(), "precious")

    def test_a_link_is_not_followed(self):
        (self.folder / "link.key").symlink_to("elsewhere.key")
        self.run_sluice("keygen", "--out", self.folder / "link.key", expect=64)
        self.assertFalse((self.folder / "elsewhere.key").exists())

    def test_a_token_follows_from_key_and_job(self):
        key = self.write("pool.key", "00" * 32 + "\n")
        token = self.run_sluice("keygen", "--key-file", key, "--job", "train-7").stdout
        self.assertRegex(token, r"^[0-9a-f]{64}\n$")
        self.assertEqual(self.run_sluice("keygen", "--key-file", key, "--job", "train-7").stdout, token)
        self.assertNotEqual(self.run_sluice("keygen", "--key-file", key, "--job", "train-8").stdout, token)
        # HMAC-SHA256(key, "sluice job token" 00 job 00), docs/reference/protocol.md section 5, by another implementation.
        self.assertEqual(token.strip(), hmac.new(bytes(32), b"sluice job token\0train-7\0", hashlib.sha256).hexdigest())
        self.expect_error(64, "--key-file or SLUICE_KEY_FILE", "keygen", "--job", "train-7")
        self.assertEqual(self.run_sluice("keygen", "--job", "train-7", env={"SLUICE_KEY_FILE": str(key)}).stdout, token)
        self.run_sluice("keygen", "--key-file", key, expect=64)
        self.run_sluice("keygen", "--key-file", key, "--job", "", expect=64)

    def test_the_variables_of_workers_do_not_turn_a_new_key_into_a_token(self):
        key = self.write("pool.key", "00" * 32 + "\n")
        token = self.run_sluice("keygen", "--key-file", key, "--job", "train-7").stdout
        for env in ({"SLUICE_KEY_FILE": str(key)}, {"SLUICE_KEY_FILE": str(key), "SLUICE_JOB": "train-7"}, {"SLUICE_JOB": "train-7"}):
            with self.subTest(env):
                made = self.folder / f"new-{len(env)}-{'SLUICE_JOB' in env}.key"
                self.run_sluice("keygen", "--out", made, env=env)
                self.assertRegex(made.read_text(), r"^[0-9a-f]{64}\n$")
                self.assertNotIn(made.read_text(), (token, key.read_text()))


if __name__ == "__main__":
    main()
