"""Tests the scripts of `sluice completion` in their shells."""

import subprocess

from deploy_case import DEADLINE_S, DeployTest, command_paths, environment, main, need, program

# Does what bash does on TAB, without a terminal. The arguments are the words of the command line; the last is incomplete.
BASH = """
source "$1"
complete -p "$2" || exit 1
shift
COMP_WORDS=("$@")
COMP_CWORD=$((${#COMP_WORDS[@]} - 1))
COMPREPLY=()
_${1//-/_}
printf '%s\\n' "${COMPREPLY[@]}"
"""


def script(shell, name="sluice"):
    done = subprocess.run([program(name), "completion", shell], capture_output=True, text=True, check=True, timeout=DEADLINE_S, env=environment())
    return done.stdout


class Bash(DeployTest):
    def setUp(self):
        need("bash")
        super().setUp()
        self.script = self.write("sluice.bash", script("bash"))

    def completions(self, *words):
        lines = self.command("bash", "--norc", "-uc", BASH, "bash", self.script, *words, cwd=self.folder).stdout.splitlines()
        self.assertEqual(lines[0], f"complete -F _{words[0].replace('-', '_')} {words[0]}")
        return [word for word in lines[1:] if word]

    def test_all_commands_are_completed(self):
        paths = command_paths()
        self.assertGreater(len(paths), 15)
        for path in paths:
            below = [other[-1] for other in paths if other[:-1] == path]
            if below:
                self.assertEqual(sorted(self.completions(*path, "")), sorted(below), path)

    def test_incomplete_words(self):
        self.assertEqual(self.completions("sluice", "red"), ["reducer"])
        self.assertEqual(self.completions("sluice", "bench", "all"), ["allreduce"])
        self.assertEqual(self.completions("sluice", "reducer", "--drain"), ["--drain-exit-code", "--drain-timeout"])
        self.assertEqual(self.completions("sluice", "completion", "z"), ["zsh"])

    def test_values_of_options(self):
        self.assertEqual(self.completions("sluice", "--log-level", ""), ["debug", "info", "warn", "error"])
        self.assertEqual(self.completions("sluice", "--log-level", "=", "de"), ["debug"], "bash splits --log-level=de")
        self.assertEqual(self.completions("sluice", "--log-level", "="), ["debug", "info", "warn", "error"])
        self.assertEqual(self.completions("sluice", "--log-level", "warn", "key"), ["keygen"], "a value is not a command")
        self.assertEqual(self.completions("sluice", "--log-level", "=", "warn", "key"), ["keygen"])
        self.assertEqual(self.completions("sluice", "reducer", "--tls", "re"), ["require"])
        self.assertEqual(self.completions("sluice", "reducer", "--listen", ""), [], "addresses are not completed")

    def test_files(self):
        (self.folder / "pool.key").touch()
        (self.folder / "pool.d").mkdir()
        self.assertEqual(sorted(self.completions("sluice", "reducer", "--key-file", "pool")), ["pool.d", "pool.key"])
        self.assertEqual(self.completions("sluice", "man", "--out", "pool"), ["pool.d"])
        self.assertEqual(self.completions("sluice", "check", "plugin", "pool.k"), ["pool.key"])

    def test_program_and_file_after_two_dashes(self):
        (self.folder / "train.py").touch()
        self.assertIn("bash", self.completions("sluice", "reducer", "--", "bas"))
        self.assertEqual(self.completions("sluice", "reducer", "--", "python3", "tr"), ["train.py"])

    def test_gpu_bench(self):
        self.script.write_text(script("bash", "sluice-gpu-bench"))
        self.assertEqual(self.completions("sluice-gpu-bench", "--minb"), ["--minbytes"])


class OtherShells(DeployTest):
    def test_fish_completes_commands_options_and_values(self):
        need("fish")
        path = self.write("sluice.fish", script("fish"))

        def completions(line):
            output = self.command("fish", "--no-config", "-c", f"source {path}; complete -C '{line}'", cwd=self.folder,
                                env=environment({"HOME": str(self.folder)})).stdout
            return [line.split("\t")[0] for line in output.splitlines()]

        self.assertEqual(sorted(completions("sluice ")), sorted(path[1] for path in command_paths() if len(path) == 2))
        self.assertEqual(completions("sluice bench all"), ["allreduce"])
        self.assertEqual(completions("sluice reducer --drain"), ["--drain-exit-code", "--drain-timeout"])
        self.assertEqual(completions("sluice reducer --tls re"), ["require"])
        self.assertEqual(completions("sluice --log-level warn key"), ["keygen"])
        (self.folder / "pool.key").touch()
        self.assertEqual(completions("sluice reducer --key-file pool"), ["pool.key"])

    def test_zsh_defines_a_function_for_each_command(self):
        need("zsh")
        path = self.write("_sluice", script("zsh"))
        self.command("zsh", "-n", path)
        names = "".join(f"whence -w {'_' + '_'.join(words)}\n" for words in command_paths())
        output = self.command("zsh", "-f", "-c", f"autoload -Uz compinit; compinit -D -u; source {path}; print -r -- $_comps[sluice]\n{names}",
                            env=environment({"HOME": str(self.folder)})).stdout
        self.assertEqual(output.splitlines()[0], "_sluice", output)
        self.assertNotIn("none", output)


if __name__ == "__main__":
    main()
