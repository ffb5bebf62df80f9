"""What goes wrong around CollNet's connect and during traffic: one answer on all ranks, in bounded time, and never a hang."""

import contextlib
import os
import re
import signal
import time

from playing import CONNECT_TIMEOUT_S, Play, abi, main, pause
from sluice_process import children_of, closed_port

# Over the plugin's own deadline: the machine that runs the tests may be busy.
SLACK_S = 4
# Nodes tell each other whole milliseconds, and the kernel tells how old a word is in its own ticks.
CLOCK_S = 0.05


class Connect(Play):
    def took(self, lines, answer="refused"):
        """Seconds that connect took on the ranks it answered so, in their order."""
        ranks = sorted((int(found[1]), int(found[2]) / 1000) for line in lines
                       if (found := re.search(rf"rank (\d+): {answer} after (\d+) ms", line)))
        self.assertTrue(ranks, lines)
        return [seconds for _, seconds in ranks]

    def refused(self, *options, ranks=3, env=None, within_s=CONNECT_TIMEOUT_S):
        """All ranks are refused in time. Returns the lines."""
        lines = self.play("connect", "--ranks", ranks, "--expect", "fail", *options, env=env)
        self.assertLess(max(self.took(lines)), within_s + SLACK_S, lines)
        return lines

    def reason(self, lines):
        """What the plugin says, the same on every rank."""
        said = {re.sub(r"^rank \d+: ", "", line) for line in lines if "OFF" in line}
        self.assertEqual(len(said), 1, "\n".join(sorted(said)))
        return said.pop()

    def test_an_answer_that_is_not_the_same_is_noticed(self):
        # What all others here rely on: one rank turns its answer round.
        self.start_pool(1)
        for options, how_many in ((("--expect", "ok"), 2), (("--expect", "fail", "--absent", 2, "--gone"), 1)):
            lines = self.play("connect", "--ranks", 3, "--contrary", 1, *options, expect=1)
            self.assertTrue([line for line in lines if f"connect succeeded on {how_many} ranks only" in line], lines)

    def test_no_reducer_is_there(self):
        holder, port = closed_port()
        self.addCleanup(holder.close)
        self.addresses = [f"127.0.0.1:{port}"]
        self.reason(self.refused("--rounds", 2))

    def test_one_of_the_reducers_is_not_there(self):
        self.start_pool(2)
        holder, port = closed_port()
        self.addCleanup(holder.close)
        self.addresses.append(f"127.0.0.1:{port}")
        self.assertIn(str(port), self.reason(self.refused()))

    def test_one_rank_does_not_reach_one_reducer(self):
        self.start_pool(2)
        holder, port = closed_port()
        self.addCleanup(holder.close)
        other = f"{self.addresses[0]},127.0.0.1:{port}"
        self.reason(self.refused("--rank-env", f"1:SLUICE_REDUCERS={other}"))

    def test_one_rank_has_another_key(self):
        keys = [self.folder / name for name in ("pool.key", "other.key")]
        for key in keys:
            self.run_sluice("keygen", "--out", key)
        self.start_pool(2, "--key-file", keys[0])
        self.play("connect", "--ranks", 3, env={"SLUICE_KEY_FILE": str(keys[0])})
        self.reason(self.refused("--rank-env", f"2:SLUICE_KEY_FILE={keys[1]}", env={"SLUICE_KEY_FILE": str(keys[0])}))

    def test_nobody_has_a_key(self):
        key = self.folder / "pool.key"
        self.run_sluice("keygen", "--out", key)
        self.start_pool(1, "--key-file", key)
        self.assertIn("SLUICE_KEY_FILE", self.reason(self.refused()))

    def test_a_reducer_is_full(self):
        self.start_pool(1)
        self.start_pool(1, "--memory-limit", "64K")
        self.reason(self.refused())

    def test_a_reducer_that_does_not_answer(self):
        self.start_pool(2)
        self.reducers[1].signal(signal.SIGSTOP)
        self.refused()
        self.reducers[1].signal(signal.SIGCONT)

    def test_a_rank_that_never_connects(self):
        self.start_pool(1)
        for absent in (0, 2):
            # One that leads is missed by all others by themselves, a little after one that leads would miss them.
            lines = self.refused("--absent", absent, env={"SLUICE_JOIN_TIMEOUT": "2s"}, within_s=2 + 2)
            self.assertGreaterEqual(sorted(self.took(lines))[1], 2 - CLOCK_S, lines)

    def test_a_rank_whose_process_ended_is_not_waited_for(self):
        self.start_pool(1)
        for absent in (0, 2):
            self.refused("--absent", absent, "--gone")

    def test_a_rank_that_connects_late_is_waited_for(self):
        self.start_pool(2)
        for late in (0, 1):
            lines = self.play("connect", "--ranks", 3, "--late-rank", late, "--late-until", "waiting", env={"SLUICE_CONNECT_TIMEOUT": "1s"})
            # Longer than all of what reaching the reducers may take.
            self.assertGreaterEqual(sorted(self.took(lines, "connected"))[1], 1, lines)

    def test_a_rank_that_connects_too_late(self):
        self.start_pool(2)
        env = {"SLUICE_CONNECT_TIMEOUT": "1s", "SLUICE_JOIN_TIMEOUT": "1s"}
        for late in (0, 1):
            lines = self.refused("--late-rank", late, "--late-until", "answered", env=env, within_s=1 + 2)
            took = self.took(lines)
            self.assertLess(took.pop(late), 1, lines)
            self.assertGreaterEqual(min(took), 1 - CLOCK_S, lines)
            # Around the moment when the others give up it may go either way, but the same way for all.
            for late_ms in range(960, 1041, 20):
                self.play("connect", "--ranks", 3, "--late-rank", late, "--late-ms", late_ms, "--expect", "same", env=env)

    def test_a_rank_freezes_at_any_moment_of_connect(self):
        self.start_pool(2)
        for moment in range(6):
            with self.subTest(moment=moment):
                playing = self.begin_play("connect", "--abi", abi(), "--ranks", 3, "--expect", "same",
                                          env={"SLUICE_CONNECT_TIMEOUT": "1s", "SLUICE_JOIN_TIMEOUT": "1s"})
                self.assertTrue(playing.wait_for("connecting"), playing.text())
                rank = children_of(playing.process.pid)[moment % 3]
                pause(moment * 0.002)
                # It may be through by now.
                with contextlib.suppress(ProcessLookupError):
                    os.kill(rank, signal.SIGSTOP)
                    pause(3.5)  # longer than any rank waits for another
                    os.kill(rank, signal.SIGCONT)
                self.assertEqual(playing.wait(), 0, playing.text())

    def test_a_reducer_freezes_at_any_moment_of_connect(self):
        self.start_pool(2)
        for moment in range(8):
            with self.subTest(moment=moment):
                playing = self.begin_play("connect", "--abi", abi(), "--ranks", 3, "--expect", "same",
                                          env={"SLUICE_CONNECT_TIMEOUT": "1s"})
                self.assertTrue(playing.wait_for("connecting"), playing.text())
                pause(moment * 0.001)
                self.reducers[moment % 2].signal(signal.SIGSTOP)
                # Connected, or refused: then what is frozen is missed during traffic.
                playing.wait_for("rank 2: ")
                self.reducers[moment % 2].signal(signal.SIGCONT)
                self.assertEqual(playing.wait(), 0, playing.text())

    def test_a_reducer_dies_at_any_moment_of_connect(self):
        for moment in range(16):
            with self.subTest(moment=moment):
                self.addresses.clear()
                self.start_pool(2)
                playing = self.begin_play("connect", "--abi", abi(), "--ranks", 3, "--expect", "same")
                self.assertTrue(playing.wait_for("connecting"), playing.text())
                pause(moment * 0.001)
                victim, other = self.reducers[-2:] if moment % 4 else self.reducers[:-3:-1]
                victim.end()
                self.assertEqual(playing.wait(), 0, playing.text())
                other.end()


class Traffic(Play):
    def test_a_reducer_dies_during_traffic(self):
        for scenario_env in ({}, {"SLUICE_THREADS": "0"}):
            with self.subTest(**scenario_env):
                self.addresses.clear()
                self.start_pool(2)
                playing = self.begin_play("until-error", "--abi", abi(), "--ranks", 3, env=scenario_env)
                self.assertTrue(playing.wait_for("running"), playing.text())
                killed = time.monotonic()
                self.reducers[-1].end()
                self.assertEqual(playing.wait(), 0, playing.text())
                self.assertLess(time.monotonic() - killed, 15, playing.text())
                self.assertIn(self.addresses[-1], playing.text())

    def test_a_rank_goes_away_with_requests_open(self):
        self.start_pool(1)
        self.play("abort-one", "--ranks", 3)

    def test_a_late_rank_is_waited_for(self):
        self.start_pool(1)
        self.play("late", "--ranks", 3, "--late-ms", 3000)


if __name__ == "__main__":
    main()
