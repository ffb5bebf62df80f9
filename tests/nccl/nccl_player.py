"""Base classes for tests with real reducers and the player, the program that calls the built plugin like NCCL."""

import argparse
import os
import re
import subprocess
import sys
import threading
import time
import unittest
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "functional"))

import sluice_process  # noqa: E402
from evidence import Evidence, run_and_record  # noqa: E402
from sluice_process import DEADLINE_S, SluiceTest, environment  # noqa: E402

NET_ABIS = range(5, 13)
COLLNET_ABIS = range(8, 13)
TUNER_ABIS = range(2, 8)
PROFILER_ABIS = range(1, 8)
CONNECT_TIMEOUT_S = 5

PLAYER = None
PLUGIN = None
ABI = None


def main(proves=None, subjects=None):
    """Entry point of every test file: --player PROGRAM --plugin FILE [--abi N] --sluice PROGRAM, then options of unittest.

    If all cases pass, the feature `proves` has been played with `subjects` (default: the tested ABI version)."""
    global PLAYER, PLUGIN, ABI
    parser = argparse.ArgumentParser()
    parser.add_argument("--player", type=Path, required=True)
    parser.add_argument("--plugin", type=Path, required=True)
    parser.add_argument("--abi", type=int, help="ABI version to test (default: the newest)")
    arguments, rest = parser.parse_known_args()
    PLAYER, PLUGIN, ABI = str(arguments.player.resolve()), arguments.plugin.resolve(), arguments.abi
    sys.argv[1:] = rest
    evidence = Evidence(is_whole_program=len(rest) == 2)  # --sluice PROGRAM
    for subject in (subjects or [f"v{abi()}"]) if proves else []:
        evidence.add(proves, subject, "played")
    run_and_record(evidence, sluice_process.main)


def abi():
    return ABI or max(NET_ABIS)


def is_brief():
    """Whether to skip cases that do not depend on the ABI version: SLUICE_TEST_BRIEF=1."""
    return os.environ.get("SLUICE_TEST_BRIEF") == "1"


def newest_abi_only(test):
    """Decorator for a test that does not depend on the ABI version: it runs only with the newest version, because the others set SLUICE_TEST_BRIEF=1."""
    return unittest.skip("left out: the newest ABI version runs it")(test) if is_brief() else test


def library_beside_plugin(name):
    """The path of a library of the same build."""
    return PLUGIN.parent / name


class PlayerTest(SluiceTest):
    """A test with reducers and players. SLUICE_REDUCERS is set to self.addresses."""

    def setUp(self):
        super().setUp()
        self.addresses = []
        self.reducers = []

    def start_pool(self, count, *arguments):
        for _ in range(count):
            reducer, address = self.start_reducer(*arguments)
            self.reducers.append(reducer)
            self.addresses.append(address)

    def environment(self, extra=None, drop=()):
        values = {"SLUICE_NET": "always", "SLUICE_IFNAME": "lo", "SLUICE_CONNECT_TIMEOUT": f"{CONNECT_TIMEOUT_S}s"}
        if self.addresses:
            values["SLUICE_REDUCERS"] = ",".join(self.addresses)
        for name in drop:
            del values[name]
        values.update(extra or {})
        return environment(values)

    def start_player(self, scenario, *options, env=None, drop=()):
        # The watchdog of the player expires before this test's deadline, because it reports the step of each rank.
        player = PlayerProcess([PLAYER, str(PLUGIN), "--scenario", scenario, "--seconds", str(DEADLINE_S * 0.8), *map(str, options)],
                               self.environment(env, drop))
        self.addCleanup(player.end)
        return player

    def run_player(self, scenario, *options, env=None, expect=0):
        """Runs the player to its end and returns the lines of its ranks."""
        player = self.start_player(scenario, "--abi", abi(), *options, env=env)
        code = player.wait()
        self.assertEqual(code, expect, f"{scenario} {options}\n{player.text()}")
        return player.lines()


# Co-located reducers beside a pool on loopback, and without dedicated reducers.
BESIDE_POOL = {"SLUICE_COLOCATED": "always"}
WITHOUT_POOL = {"SLUICE_REDUCERS": "none"}


class RecoveryTest(PlayerTest):
    """A test of traffic that recovers from losses: every sum is right, no buffer is written after its request is done, and each event is logged once."""

    def start_traffic(self, count, *arguments, env=None):
        self.addresses.clear()
        self.reducers.clear()
        self.start_pool(count, *arguments)
        player = self.start_player("until-stopped", "--abi", abi(), "--ranks", 3, "--verbose", env=env)
        self.assertTrue(player.wait_for(": round "), player.text())
        return player

    def expect_recovery(self, player, stalls=1):
        """Waits until all ranks have logged the stalls, each once with the reducer, the reason and the duration, and run some more rounds."""
        self.assertTrue(player.wait_for("session resumed after", 3 * stalls), player.text())
        self.assertTrue(player.wait_for(": round ", player.count(": round ") + 2), player.text())

    def finish(self, player, *left, reducers_lost=None):
        """Ends the traffic and checks the log. `left`: addresses of the removed reducers, one stall each; `reducers_lost`: the number of them that count as lost."""
        self.assertEqual(player.stop(), 0, player.text())
        self.assertEqual(player.count("all right:"), 3, player.text())
        self.assertEqual(player.count("offload ended"), 0, player.text())
        # On a busy machine the measured rate of a link may change, which moves chunks, too.
        resumed = [line for line in player.lines() if "session resumed after" in line]
        stalls = [line for line in resumed if not re.search(r"view changed \((this rank's link|the rate of a link) has ", line)]
        self.assertEqual(len(stalls), 3 * len(left), player.text())
        for address in left:
            of_reducer = [line for line in stalls if re.search(rf"after \d+ ms: view changed \(reducer {address}\b.*: .+\)", line)]
            self.assertEqual(sorted({line[:6] for line in of_reducer}), ["rank 0", "rank 1", "rank 2"], player.text())
        lost = len(left) if reducers_lost is None else reducers_lost
        # Each line names the session and the rank, because a process may have many communicators.
        identified = [re.match(r"(rank \d).* NET/SLUICE: ([0-9a-f]{8}) \1: ", line) for line in player.lines() if "session resumed after" in line or " lost: " in line]
        self.assertNotIn(None, identified, player.text())
        self.assertLessEqual(len({found[2] for found in identified}), 1, player.text())
        for rank in range(3 if resumed else 0):
            views = sum(line.startswith(f"rank {rank}: ") for line in resumed)
            summary = rf"rank {rank}: .*recovered: 0 connections resumed, {views} view changes, {lost} reducers lost"
            self.assertEqual(sum(re.match(summary, line) is not None for line in player.lines()), 1, player.text())
        self.assertEqual(player.count("recovered: "), 3 if resumed else 0, player.text())


class PlayerProcess:
    """A running player. A thread reads its output."""

    def __init__(self, command, env):
        self.command = command
        self.process = subprocess.Popen(command, env=env, stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                                        stderr=subprocess.STDOUT, text=True, errors="replace")
        self._lines = []
        self._changed = threading.Condition()
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def _read(self):
        for line in self.process.stdout:
            with self._changed:
                self._lines.append(line.rstrip("\n"))
                self._changed.notify_all()
        with self._changed:
            self._lines.append(None)
            self._changed.notify_all()

    def wait_for(self, text, times=1):
        """Waits until `times` lines contain `text`. Returns False if the player ends before."""
        def found():
            return sum(line is not None and text in line for line in self._lines) >= times

        with self._changed:
            seen = self._changed.wait_for(lambda: found() or None in self._lines, DEADLINE_S)
            if not seen:
                raise AssertionError(f"no '{text}' from {self.command}\n{self.text()}")
            return found()

    def count(self, text):
        return sum(text in line for line in self.lines())

    def stop(self):
        """Ends the scenario "until-stopped" and waits for the exit code."""
        self.process.stdin.close()
        return self.wait()

    def wait(self):
        try:
            code = self.process.wait(DEADLINE_S)
        except subprocess.TimeoutExpired as expired:
            raise AssertionError(f"{self.command} did not end\n{self.text()}") from expired
        self._reader.join(DEADLINE_S)
        return code

    def lines(self):
        return [line for line in self._lines if line is not None]

    def text(self):
        return "\n".join(self.lines())

    def end(self):
        if self.process.poll() is None:
            self.process.kill()
        self.process.wait()
        self._reader.join(DEADLINE_S)
        self.process.stdin.close()
        self.process.stdout.close()


def pause(seconds):
    """Sleeps in tests whose subject is the time of an event; never used to wait for a condition."""
    time.sleep(seconds)
