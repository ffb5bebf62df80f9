"""The options of `sluice reducer`: precedence of command line, variables, file and defaults; error messages; --print-config, --check-config, the sample file
and the log formats."""

import json
import os
import re
import subprocess
import tomllib
from pathlib import Path

import sluice_process
from sluice_process import SluiceTest, environment, main

SAMPLE = Path(__file__).resolve().parents[2] / "config" / "reducer.toml"


class ConfigurationTest(SluiceTest):
    def print_config(self, *arguments, env=None, sample=False):
        return self.run_sluice("reducer", *arguments, "--print-config=sample" if sample else "--print-config", env=env).stdout

    def values(self, *arguments, env=None):
        """{key: (value, origin)}"""
        text = self.print_config(*arguments, env=env)
        origins = {}
        for line in text.splitlines():
            if " = " in line:
                origins[line.split(" = ")[0]] = line.rsplit("  # ", 1)[1]
        return {key: (value, origins[key]) for table in tomllib.loads(text).values() for key, value in table.items()}

    def expect_line(self, code, line, *arguments, env=None):
        done = self.run_sluice("reducer", *arguments, expect=code, env=env)
        self.assertEqual(done.stderr, f"sluice: {line}\n")
        self.assertEqual(done.stdout, "")


class Precedence(ConfigurationTest):
    # option, default, and the values in the file, the variable and on the command line, each with its parsed value
    TABLE = (
        ("lanes", 0, ("2", 2), ("3", 3), ("4", 4)),
        ("memory_limit", "0", ('"1G"', "1G"), ("512M", "512M"), ("64M", "64M")),
        ("drain_timeout", "25s", ('"7s"', "7s"), ("8s", "8s"), ("9s", "9s")),
        ("idle", "epoll", ('"yield"', "yield"), ("spin", "spin"), ("yield", "yield")),
        ("weight", [], ('["a=2"]', ["a=2"]), ("b=3,c=4", ["b=3", "c=4"]), ("d=5", ["d=5"])),
        ("insecure", False, ("true", True), ("1", True), ("true", True)),
        ("ib_gid_index", -1, ("1", 1), ("2", 2), ("3", 3)),
        ("listen", "127.0.0.1:7470", ('"*:1"', "*:1"), ("[::1]:2", "[::1]:2"), ("localhost:3", "localhost:3")),
        ("log_level", "info", ('"warn"', "warn"), ("error", "error"), ("debug", "debug")),
    )

    def test_every_combination_of_sources(self):
        for key, default, in_file, in_variable, on_line in self.TABLE:
            path = self.write("reducer.toml", f"{key} = {in_file[0]}\n")
            variable = f"SLUICE_{key.upper()}"
            option = f"--{key.replace('_', '-')}={on_line[0]}"
            for number in range(8):
                arguments, env, expected = [], {}, (default, "default")
                if number & 1:
                    arguments += ["--config", path]
                    expected = (in_file[1], f"{path}:1:{len(key) + 4}")
                if number & 2:
                    env[variable] = in_variable[0]
                    expected = (in_variable[1], f"env {variable}")
                if number & 4:
                    arguments += [option]
                    expected = (on_line[1], "cli")
                with self.subTest(key=key, sources=number):
                    self.assertEqual(self.values(*arguments, env=env)[key], expected)

    def test_a_variable_may_name_the_file(self):
        path = self.write("reducer.toml", "[capacity]\nlanes = 7\n")
        self.assertEqual(self.values(env={"SLUICE_CONFIG": str(path)})["lanes"], (7, f"{path}:2:9"))

    def test_an_empty_variable_counts_as_not_set(self):
        path = self.write("reducer.toml", "lanes = 7\n")
        self.assertEqual(self.values("--config", path, env={"SLUICE_LANES": ""})["lanes"][0], 7)

    def test_weights_may_be_a_table(self):
        for text in ('[shares]\nweight = { acme = 3, "odd = name" = 2 }\n', '[shares.weight]\nacme = 3\n"odd = name" = 2\n'):
            self.assertEqual(self.values("--config", self.write("reducer.toml", text))["weight"][0], ["acme=3", "odd = name=2"])

    def test_the_reducer_runs_with_the_effective_values(self):
        path = self.write("reducer.toml", '[capacity]\nlanes = 3\nmemory_limit = "64M"\n[shares]\nweight = { acme = 5 }\n')
        _, address = self.start_reducer("--config", path, env={"SLUICE_LANES": "2"})
        status = self.status(address)
        self.assertEqual((status["lanes"], status["memory"]["limit_bytes"]), (2, 64 << 20))
        self.assertEqual([(t["tenant"], t["weight"]) for t in status["tenants"]], [("acme", 5)])

    def test_no_file_is_read_without_the_option(self):
        """Not from the working directory, the home directory or /etc."""
        self.write("reducer.toml", "lanes = 7\n")
        done = subprocess.run([sluice_process.PROGRAM, "reducer", "--print-config"], capture_output=True, text=True, check=True, timeout=60, cwd=self.folder,
                              env=environment({"HOME": str(self.folder), "XDG_CONFIG_HOME": str(self.folder)}))
        self.assertEqual(set(tomllib.loads(done.stdout)["capacity"].items()) & {("lanes", 0)}, {("lanes", 0)})


class Errors(ConfigurationTest):
    def test_in_the_file_have_line_and_column(self):
        for text, expected in (
                ("lanes = 9999\n", "1:9: lanes = 9999: must be 0 to 1024"),
                ("# lanes\n[capacity]\n  lanes = -1\n", "3:11: lanes = -1: must be 0 to 1024"),
                ('lanes = "2"\n', "1:9: lanes: expected an integer, found a string"),
                ("lanes = 2.0\n", "1:9: lanes: expected an integer, found a floating-point number"),
                ("lanes = { a = 1 }\n", "1:9: lanes: expected an integer, found a table"),
                ("insecure = 1\n", "1:12: insecure: expected true or false, found an integer"),
                ("key_file = 2026-11-20\n", "1:12: key_file: expected a string, found a date or time"),
                ("memory_limit = true\n", '1:16: memory_limit: expected a string such as "64K" or a number of bytes, found a boolean'),
                ('memory_limit = "4Q"\n', '1:16: memory_limit = 4Q: "4Q" has an unknown unit; expected K, M, G or T (powers of 1024)'),
                ('max_slot = "8M"\n', "1:12: max_slot = 8M: must be 4K to 4M"),
                ("heartbeat = 10\n", '1:13: heartbeat = 10: "10" has no unit; expected us, ms, s, m or h'),
                ('heartbeat = "10us"\n', "1:13: heartbeat = 10us: must be 1ms to 168h"),
                ('idle = "tea"\n', "1:8: idle = tea: must be one of epoll, yield, spin"),
                ('listen = "nowhere:port"\n', "1:10: listen = nowhere:port: expected HOST:PORT"),
                ('weight = ["acme"]\n', "1:10: weight = acme: expected TENANT=N"),
                ('weight = ["a=1", 2]\n', '1:18: weight: expected an array of strings such as "name=1", or a table, found an integer'),
                ("weight = { acme = 101 }\n", "1:10: weight = acme=101: weight must be 1 to 100"),
                ("lane = 2\n", '1:1: unknown key "lane"; did you mean "lanes"?'),
                ("[capacity]\nlane = 2\n", '2:1: unknown key "lane"; did you mean "lanes"?'),
                ("[capacty]\nlanes = 2\n", '1:2: unknown table "capacty"; did you mean "capacity"?'),
                ("[shares]\nlanes = 2\n", '2:1: key "lanes" belongs in table [capacity]'),
                ("print_config = true\n", '1:1: unknown key "print_config"; did you mean "port_file"?'),
        ):
            path = self.write("reducer.toml", text)
            with self.subTest(text):
                self.expect_line(78, f"{path}:{expected}", "--config", path)
                self.expect_line(78, f"{path}:{expected}", "--config", path, "--check-config")

    def test_a_duplicate_key_names_both_positions(self):
        path = self.write("reducer.toml", "lanes = 1\n[capacity]\nlanes = 2\n")
        self.expect_line(78, f'{path}:3:1: key "lanes" is already set at {path}:1:9', "--config", path)

    def test_invalid_toml_has_line_and_column(self):
        path = self.write("reducer.toml", "lanes = 1\nlisten = = 2\n")
        self.expect_error(78, re.compile(rf"^sluice: {path}:2:10: .*\n$"), "reducer", "--config", path)

    def test_an_overridden_value_is_not_checked(self):
        path = self.write("reducer.toml", "lanes = 9999\n")
        self.assertEqual(self.values("--config", path, env={"SLUICE_LANES": "2"})["lanes"][0], 2)
        self.assertEqual(self.values("--lanes", "3", env={"SLUICE_LANES": "many"})["lanes"][0], 3)

    def test_a_file_that_cannot_be_read_is_named(self):
        missing = self.folder / "none.toml"
        self.expect_line(78, f"cannot read {missing}: No such file or directory", "--config", missing)
        for path in (self.folder, "/dev/zero"):
            self.expect_line(78, f"{path}: not a regular file", "--config", path)

    def test_on_the_command_line_are_exit_64_and_in_a_variable_78(self):
        hint = " (see sluice reducer --help)"
        for key, value, error in (("lanes", "9999", "must be 0 to 1024"), ("lanes", "many", "expected an integer"), ("idle", "tea", "must be one of epoll, yield, spin"),
                                  ("memory_limit", "4Q", '"4Q" has an unknown unit; expected K, M, G or T (powers of 1024)'), ("default_weight", "0", "must be 1 to 100"),
                                  ("weight", "acme=x", "expected TENANT=N"), ("listen", "nowhere:port", "expected HOST:PORT"),
                                  ("ib_tc", "256", "must be 0 to 255"), ("log_format", "xml", "must be one of logfmt, json")):
            with self.subTest(key=key, value=value):
                option, variable = "--" + key.replace("_", "-"), "SLUICE_" + key.upper()
                self.expect_line(64, f"{option} {value}: {error}{hint}", f"{option}={value}")
                self.expect_line(78, f"{variable}={value}: {error}", env={variable: value})
        self.expect_line(78, "SLUICE_INSECURE=maybe: must be true or false", env={"SLUICE_INSECURE": "maybe"})

    def test_more_memory_than_the_machine_has_is_refused(self):
        for option in ("--memory-limit", "--state-memory"):
            for more in ((), ("--check-config",)):
                with self.subTest(option=option, more=more):
                    done = self.run_sluice("reducer", "--listen", "127.0.0.1:0", option, "999T", *more, expect=78)
                    self.assertRegex(done.stderr, rf"^sluice: {option} is 1098412116 MB, but this process may use only \d+ MB( \(/\S+\))?\n$")
        self.run_sluice("reducer", "--check-config", "--memory-limit", "64M", "--state-memory", "64M")

    def test_an_unknown_variable_gets_a_suggestion(self):
        self.expect_line(78, "unknown variable SLUICE_LANE; did you mean SLUICE_LANES?", env={"SLUICE_LANE": "2"})
        self.expect_line(78, "unknown variable SLUICE_MEMORYLIMIT; did you mean SLUICE_MEMORY_LIMIT?", "--check-config", env={"SLUICE_MEMORYLIMIT": "2"})

    def test_variables_of_other_components_are_ignored(self):
        self.values(env={"SLUICE_REDUCERS": "a:99999", "SLUICE_WORKERS": "many", "SLUICE_NET_NAME": "x", "SLUICE_REDUCER_PORT": "tcp://10.0.0.1:7470",
                         "SLUICE_REDUCER_SERVICE_HOST": "10.0.0.1", "SLUICE_TEST_ANYTHING": "1"})
        self.run_sluice("keygen", env={"SLUICE_LANE": "2"})


class Check(ConfigurationTest):
    def test_a_valid_configuration_is_exit_0_and_starts_nothing(self):
        port_file = self.folder / "port"
        _, address = self.start_reducer()
        # The port is in use, so binding it would fail.
        done = self.run_sluice("reducer", "--check-config", "--listen", address, "--port-file", port_file)
        self.assertEqual((done.stdout, done.stderr), ("configuration is valid\n", ""))
        self.assertFalse(port_file.exists())

    def test_options_that_contradict_name_the_file(self):
        path = self.write("reducer.toml", '[deadlines]\npeer_timeout = "1s"\n')
        error = "peer timeout 1000 ms must be more than the heartbeat, 1000 ms"
        for more in ([], ["--check-config"]):
            self.expect_line(78, f"{path}: {error}", "--config", path, *more)
        self.expect_line(64, error, "--peer-timeout", "1s")
        self.expect_line(78, error, "--peer-timeout", "1s", "--check-config")

    def test_job_mode_requires_expected_workers(self):
        path = self.write("reducer.toml", 'mode = "job"\n')
        self.expect_line(78, f"{path}: --mode job requires --expected-workers", "--config", path, "--check-config")
        self.expect_line(64, "--mode job requires --expected-workers", "--mode", "job")

    def test_keys_and_certificates_are_read(self):
        missing = self.folder / "missing.key"
        self.expect_line(78, f"key file: cannot read {missing}: No such file or directory", "--check-config", "--key-file", missing)
        self.expect_error(78, re.compile(r"^sluice: .*missing\.key.*\n$"), "reducer", "--check-config", "--tls", "on", "--tls-cert", missing)
        self.expect_line(78, "listening on a non-loopback address needs a key file (--key-file, created by sluice keygen), or --insecure if every "
                             "host on the network is trusted", "--check-config", "--listen", "*:7470")
        self.run_sluice("reducer", "--check-config", "--key-file", self.make_key(), "--listen", "*:7470")
        self.expect_error(78, 'cannot set congestion control "none"', "reducer", "--check-config", "--congestion-control", "none")
        self.run_sluice("reducer", "--check-config", "--congestion-control", "reno")
        self.expect_error(78, "no RDMA device", "reducer", "--check-config", "--transport", "rdma", "--ib-hca", "=none")


    def test_an_overridden_value_is_named_with_what_overrides_it(self):
        path = self.write("reducer.toml", 'lanes = 4\nlisten = "10.0.0.1:7470"\nheartbeat = "2s"\n')
        env = {"SLUICE_LISTEN": "127.0.0.1:0", "SLUICE_LANES": "2", "SLUICE_IDLE": "spin"}
        lines = ["--lanes 1 has precedence over SLUICE_LANES=2", f"--lanes 1 has precedence over {path}:1:9: lanes = 4",
                 f"SLUICE_LISTEN=127.0.0.1:0 has precedence over {path}:2:10: listen = 10.0.0.1:7470"]
        arguments = ("reducer", "--config", path, "--lanes", "1")
        self.assertEqual(self.run_sluice(*arguments, "--check-config", env=env).stdout, "\n".join([*lines, "configuration is valid\n"]))
        port_file = self.folder / "port"
        reducer = self.start(*arguments, "--port-file", port_file, env=env)
        sluice_process.until("the reducer listens", lambda: port_file.exists() or reducer.ended())
        self.expect_drained(reducer)
        self.assertEqual([line in reducer.stderr() for line in lines], [True] * 3, reducer.stderr())

    def test_what_will_be_written_is_checked_before_the_reducer_listens(self):
        file = self.write("file", "")
        for option, path, error in (
                ("--state", file / "models", f"cannot write to {file}(/models)?: Not a directory"),
                ("--state", "/proc/sys/models", "cannot write to /proc/sys: (Permission denied|Operation not permitted|Read-only file system)"),
                ("--blackbox", self.folder / "none/box", f"cannot write to {self.folder}/none: No such file or directory"),
                ("--port-file", self.folder / "none/port", f"cannot write to {self.folder}/none: No such file or directory"),
                ("--http-port-file", file / "port", f"cannot write to {file}(/port)?: Not a directory")):
            for more in (["--check-config"], ["--listen", "127.0.0.1:0"]):
                with self.subTest(option=option, path=path, more=more):
                    done = self.expect_error(78, re.compile(f"^sluice: {option} {path}: ({error})\n$"), "reducer", option, path, *more)
                    self.assertNotIn("listens", done.stderr)
        self.assertEqual(sorted(path.name for path in self.folder.iterdir()), ["file"])
        # Nothing is created to find out.
        self.run_sluice("reducer", "--check-config", "--state", self.folder / "new/models", "--port-file", "/dev/stdout", "--blackbox", "/dev/null")
        self.assertFalse((self.folder / "new").exists())


class Print(ConfigurationTest):
    def test_the_output_is_an_equivalent_file(self):
        path = self.write("reducer.toml", 'heartbeat = "2s"\n[shares]\nweight = { acme = 3, "a\\"b" = 2 }\n')
        arguments = ("--config", path, "--max-slot", "64K", "--key-file", 'a "file"\\', "--insecure", "--ib-gid-index=-1")
        first = self.print_config(*arguments, env={"SLUICE_LANES": "3"})
        second = self.print_config("--config", self.write("printed.toml", first))

        def without_origins(text):
            return [line.rsplit("  # ", 1)[0].rstrip() for line in text.splitlines()]
        self.assertEqual(without_origins(second), without_origins(first))
        self.assertIn('key_file = "a \\"file\\"\\\\"', first)
        self.assertNotIn("# cli", second)
        self.assertNotIn("# default", second)

    def test_the_output_contains_every_option_of_the_help(self):
        keys = set(self.values())
        variables = {word[len("SLUICE_"):].lower() for word in self.run_sluice("reducer", "--help").stdout.replace("(Env:", " ").replace(")", " ").split()
                     if word.startswith("SLUICE_")}
        self.assertGreater(len(keys), 35)
        self.assertEqual(variables - keys, {"config"})
        self.assertEqual(keys - variables, {"log_level", "log_format"})

    def test_the_committed_sample_is_the_generated_one(self):
        self.assertEqual(SAMPLE.read_text(), self.print_config(sample=True), "sluice reducer --print-config=sample > config/reducer.toml")

    def test_the_page_has_the_generated_table(self):
        page = (SAMPLE.parents[1] / "docs/reference/configuration.md").read_text()
        table = self.run_sluice("reducer", "--print-config=markdown").stdout
        self.assertIn(f"<!-- sluice reducer --print-config=markdown -->\n\n{table}\n", page)

    def test_the_sample_contains_the_defaults(self):
        self.assertEqual({origin for _, origin in self.values("--config", SAMPLE).values()}, {"default"})
        # Without the leading #, its settings are a file with the defaults.
        lines = [line[1:] if line.startswith("#") and not line.startswith("# ") else line for line in SAMPLE.read_text().splitlines()]
        path = self.write("reducer.toml", "\n".join(lines))
        values = self.values("--config", path)
        self.assertEqual({origin.rsplit(":", 2)[0] for _, origin in values.values()}, {str(path)})
        self.assertEqual({key: value for key, (value, _) in values.items()}, {key: value for key, (value, _) in self.values().items()})
        self.run_sluice("reducer", "--config", path, "--check-config")

    def test_the_sample_does_not_depend_on_the_machine(self):
        self.assertEqual(self.print_config("--lanes", "3", sample=True, env={"SLUICE_IDLE": "spin"}), SAMPLE.read_text())


class Log(ConfigurationTest):
    def log_of(self, *arguments, env=None):
        reducer, _ = self.start_reducer(*arguments, env=env)
        self.expect_drained(reducer)
        return reducer.stderr().splitlines()

    def test_json_lines_are_json(self):
        lines = [json.loads(line) for line in self.log_of("--log-format", "json")]
        self.assertTrue(any("listens on" in line["msg"] for line in lines))
        for line in lines:
            self.assertEqual(list(line), ["ts", "level", "msg"])
            self.assertRegex(line["ts"], r"^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z$")

    def test_json_escapes_file_names(self):
        # The warning about the key's permissions contains a path with a quote and invalid UTF-8.
        key = os.fsencode(self.folder) + b'/a "\xff.key'
        with open(key, "w", encoding="ascii") as file:
            file.write("00" * 32)
        os.chmod(key, 0o644)
        done = subprocess.run([sluice_process.PROGRAM, "reducer", "--check-config", "--log-format", "json", "--key-file", key], capture_output=True, check=True,
                              timeout=60, env=environment())
        self.assertIn('/a "\\xff.key: other users can read', json.loads(done.stderr)["msg"])

    def test_only_the_journal_gets_priorities(self):
        for form, begin in (("logfmt", "ts="), ("json", '{"ts":')):
            with self.subTest(form):
                file = self.folder / f"{form}.log"
                with open(file, "wb") as log:
                    info = os.fstat(log.fileno())
                    reducer, _ = self.start_reducer("--log-format", form, stderr=log, env={"JOURNAL_STREAM": f"{info.st_dev}:{info.st_ino}"})
                self.expect_drained(reducer)
                lines = file.read_text().splitlines()
                self.assertTrue(all(line.startswith(("<6>" + begin, "<4>" + begin)) for line in lines), lines)
        # Neither is a failure information: its whole text has the priority of an error.
        _, used = self.start_reducer()
        for arguments in (["reducer", "--lanes", "many"], ["reducer", "--key-file", self.folder / "none"], ["nothing"], ["reducer", "--listen", used]):
            with open(self.folder / "failure", "w+", encoding="utf-8") as log:
                info = os.fstat(log.fileno())
                done = subprocess.run([sluice_process.PROGRAM, *map(str, arguments)], stderr=log, check=False, timeout=60,
                                      env=environment({"JOURNAL_STREAM": f"{info.st_dev}:{info.st_ino}"}))
                lines = Path(log.name).read_text().splitlines()
            self.assertNotEqual((done.returncode, lines), (0, []))
            self.assertTrue(all(line.startswith("<3>") for line in lines), lines)
        # The variable is set, but stderr is not the journal.
        self.assertTrue(all(line.startswith("ts=") for line in self.log_of(env={"JOURNAL_STREAM": "1:2"})))


if __name__ == "__main__":
    main()
