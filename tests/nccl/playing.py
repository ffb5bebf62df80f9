"""Real reducers, and the program that plays NCCL to the built plugin."""

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
from sluice_process import DEADLINE_S, SluiceTest, environment  # noqa: E402

NET_ABIS = range(5, 13)
COLLNET_ABIS = range(8, 13)
CONNECT_TIMEOUT_S = 5

PLAYER = None
PLUGIN = None
ABI = None


def main():
    """Entry of every test file: --player PROGRAM --plugin FILE [--abi N] --sluice PROGRAM, then what unittest takes."""
    global PLAYER, PLUGIN, ABI
    parser = argparse.ArgumentParser()
    parser.add_argument("--player", type=Path, required=True)
    parser.add_argument("--plugin", type=Path, required=True)
    parser.add_argument("--abi", type=int, help="the version to play; without, the newest")
    arguments, rest = parser.parse_known_args()
    PLAYER, PLUGIN, ABI = str(arguments.player.resolve()), arguments.plugin.resolve(), arguments.abi
    sys.argv[1:] = rest
    sluice_process.main()


def abi():
    return ABI or max(NET_ABIS)


def brief():
    """Whether less is to be played, where more tells nothing new: SLUICE_TEST_BRIEF=1."""
    return os.environ.get("SLUICE_TEST_BRIEF") == "1"


def lengthy(test):
    """A test of what no version changes: it is played with the newest alone, not with the others (SLUICE_TEST_BRIEF=1)."""
    return unittest.skip("left out: the newest ABI version runs it")(test) if brief() else test


def beside_plugin(name):
    """A library of the same build."""
    return PLUGIN.parent / name


class Play(SluiceTest):
    """A test with reducers and players. self.addresses is what SLUICE_REDUCERS will be."""

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

    def begin_play(self, scenario, *options, env=None, drop=()):
        # The player's own watchdog comes first: it says where each rank was.
        playing = Playing([PLAYER, str(PLUGIN), "--scenario", scenario, "--seconds", str(DEADLINE_S * 0.8),
                           *map(str, options)], self.environment(env, drop))
        self.addCleanup(playing.end)
        return playing

    def play(self, scenario, *options, env=None, expect=0):
        """To the end; the ranks' lines."""
        playing = self.begin_play(scenario, "--abi", abi(), *options, env=env)
        code = playing.wait()
        self.assertEqual(code, expect, f"{scenario} {options}\n{playing.text()}")
        return playing.lines()


class SurvivingPlay(Play):
    """Traffic that outlives losses: every sum is right, nothing is written where NCCL has its memory back, and what happened is told once."""

    def begin(self, count, *arguments, env=None):
        self.addresses.clear()
        self.reducers.clear()
        self.start_pool(count, *arguments)
        playing = self.begin_play("until-stopped", "--abi", abi(), "--ranks", 3, "--verbose", env=env)
        self.assertTrue(playing.wait_for(": round "), playing.text())
        return playing

    def goes_on(self, playing, stalls=1):
        """All ranks do, for some rounds more. Each stall is told once by each, with the reducer, why and how long."""
        self.assertTrue(playing.wait_for("goes on after", 3 * stalls), playing.text())
        self.assertTrue(playing.wait_for(": round ", playing.count(": round ") + 2), playing.text())

    def finish(self, playing, *left, reducers_lost=None):
        """`left`: addresses of the reducers that the session went on without, one stall each; `reducers_lost`: how many of them it must call lost."""
        self.assertEqual(playing.stop(), 0, playing.text())
        self.assertEqual(playing.count("all right:"), 3, playing.text())
        self.assertEqual(playing.count("offload ended"), 0, playing.text())
        stalls = [line for line in playing.lines() if "goes on after" in line]
        self.assertEqual(len(stalls), 3 * len(left), playing.text())
        for address in left:
            of_it = [line for line in stalls if re.search(rf"after \d+ ms: view changed \(reducer {address}\b.*: .+\)", line)]
            self.assertEqual(sorted({line[:6] for line in of_it}), ["rank 0", "rank 1", "rank 2"], playing.text())
        lost = len(left) if reducers_lost is None else reducers_lost
        # Which communicator it was, and which rank of it: a process may have many.
        told = [re.match(r"(rank \d).* NET/SLUICE: ([0-9a-f]{8}) \1: ", line) for line in playing.lines() if "goes on after" in line or " was lost: " in line]
        self.assertNotIn(None, told, playing.text())
        self.assertLessEqual(len({found[2] for found in told}), 1, playing.text())
        self.assertEqual(playing.count("survived: "), 3 if left else 0, playing.text())
        self.assertEqual(playing.count(f"survived: 0 connections resumed, {len(left)} view changes, {lost} reducers lost"), 3 if left else 0, playing.text())


class Playing:
    """A player that runs, its lines read as they come."""

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
        """Until so many lines contain `text`. False: the player ended before."""
        def there():
            return sum(line is not None and text in line for line in self._lines) >= times

        with self._changed:
            seen = self._changed.wait_for(lambda: there() or None in self._lines, DEADLINE_S)
            if not seen:
                raise AssertionError(f"no '{text}' from {self.command}\n{self.text()}")
            return there()

    def count(self, text):
        return sum(text in line for line in self.lines())

    def stop(self):
        """Asks the scenario "until-stopped" to end, and waits for that."""
        self.process.stdin.close()
        return self.wait()

    def wait(self):
        try:
            code = self.process.wait(DEADLINE_S)
        except subprocess.TimeoutExpired as expired:
            raise AssertionError(f"{self.command} does not end\n{self.text()}") from expired
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
    """What a test is about when it lets something happen at one moment or a later one; never a wait for a condition."""
    time.sleep(seconds)
