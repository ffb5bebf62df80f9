"""The scripts of `sluice completion`, read by the shells they are for."""

import subprocess

from deploy_case import DEADLINE_S, DeployTest, command_paths, environment, main, need, program

# What a shell does on TAB, without a terminal: the words so far, the last of them unfinished.
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
        self.script = self.folder / "sluice.bash"
        self.script.write_text(script("bash"))

    def offers(self, *words):
        told = self.command("bash", "--norc", "-uc", BASH, "bash", self.script, *words, cwd=self.folder).stdout.splitlines()
        self.assertEqual(told[0], f"complete -F _{words[0].replace('-', '_')} {words[0]}")
        return [word for word in told[1:] if word]

    def test_every_command_and_no_other(self):
        paths = command_paths()
        self.assertGreater(len(paths), 15)
        for path in paths:
            below = [other[-1] for other in paths if other[:-1] == path]
            if below:
                self.assertEqual(sorted(self.offers(*path, "")), sorted(below), path)

    def test_words_begun(self):
        self.assertEqual(self.offers("sluice", "red"), ["reducer"])
        self.assertEqual(self.offers("sluice", "bench", "all"), ["allreduce"])
        self.assertEqual(self.offers("sluice", "reducer", "--drain"), ["--drain-timeout"])
        self.assertEqual(self.offers("sluice", "completion", "z"), ["zsh"])

    def test_an_option_is_followed_by_its_values(self):
        self.assertEqual(self.offers("sluice", "--log-level", ""), ["debug", "info", "warn", "error"])
        self.assertEqual(self.offers("sluice", "--log-level", "=", "de"), ["debug"], "bash splits --log-level=de")
        self.assertEqual(self.offers("sluice", "--log-level", "="), ["debug", "info", "warn", "error"])
        self.assertEqual(self.offers("sluice", "--log-level", "warn", "key"), ["keygen"], "a value is not a command")
        self.assertEqual(self.offers("sluice", "--log-level", "=", "warn", "key"), ["keygen"])
        self.assertEqual(self.offers("sluice", "reducer", "--tls", "re"), ["require"])
        self.assertEqual(self.offers("sluice", "reducer", "--listen", ""), [], "nothing is known of addresses")

    def test_files(self):
        (self.folder / "pool.key").touch()
        (self.folder / "pool.d").mkdir()
        self.assertEqual(sorted(self.offers("sluice", "reducer", "--key-file", "pool")), ["pool.d", "pool.key"])
        self.assertEqual(self.offers("sluice", "man", "--out", "pool"), ["pool.d"])
        self.assertEqual(self.offers("sluice", "check", "plugin", "pool.k"), ["pool.key"])

    def test_another_program_after_two_dashes(self):
        (self.folder / "train.py").touch()
        self.assertIn("bash", self.offers("sluice", "reducer", "--", "bas"))
        self.assertEqual(self.offers("sluice", "reducer", "--", "python3", "tr"), ["train.py"])

    def test_the_gpu_bench(self):
        self.script.write_text(script("bash", "sluice-gpu-bench"))
        self.assertEqual(self.offers("sluice-gpu-bench", "--minb"), ["--minbytes"])


class Others(DeployTest):
    def test_fish_offers_commands_options_and_values(self):
        need("fish")
        path = self.folder / "sluice.fish"
        path.write_text(script("fish"))

        def offers(line):
            told = self.command("fish", "--no-config", "-c", f"source {path}; complete -C '{line}'", cwd=self.folder,
                                env=environment({"HOME": str(self.folder)})).stdout
            return [line.split("\t")[0] for line in told.splitlines()]

        self.assertEqual(sorted(offers("sluice ")), sorted(path[1] for path in command_paths() if len(path) == 2))
        self.assertEqual(offers("sluice bench all"), ["allreduce"])
        self.assertEqual(offers("sluice reducer --drain"), ["--drain-timeout"])
        self.assertEqual(offers("sluice reducer --tls re"), ["require"])
        self.assertEqual(offers("sluice --log-level warn key"), ["keygen"])
        (self.folder / "pool.key").touch()
        self.assertEqual(offers("sluice reducer --key-file pool"), ["pool.key"])

    def test_zsh_reads_it_and_knows_a_function_for_each_command(self):
        need("zsh")
        path = self.folder / "_sluice"
        path.write_text(script("zsh"))
        self.command("zsh", "-n", path)
        names = "".join(f"whence -w {'_' + '_'.join(words)}\n" for words in command_paths())
        told = self.command("zsh", "-f", "-c", f"autoload -Uz compinit; compinit -D -u; source {path}; print -r -- $_comps[sluice]\n{names}",
                            env=environment({"HOME": str(self.folder)})).stdout
        self.assertEqual(told.splitlines()[0], "_sluice", told)
        self.assertNotIn("none", told)


if __name__ == "__main__":
    main()
