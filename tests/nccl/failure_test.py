"""What goes wrong around CollNet's connect and during traffic: one answer on all ranks, in bounded time, and never a hang."""

import contextlib
import os
import re
import signal
import time

from playing import CONNECT_TIMEOUT_S, Play, SurvivingPlay, abi, brief, main, pause
from relay import Relay
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

    def finish(self, playing):
        """Refused, or connected; and where it is connected a loss is survived."""
        self.assertEqual(playing.wait(), 0, playing.text())
        self.assertEqual(playing.count("traffic done"), playing.count(": connected after"), playing.text())

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
                self.finish(playing)

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
                self.finish(playing)
                other.end()


class Traffic(Play):
    # Of reducers, so that what is frozen is missed soon.
    IMPATIENT = ("--heartbeat", "200ms", "--peer-timeout", "1500ms", "--absence-timeout", "2s")

    def begin_error(self, *options, env=None, ranks=3):
        playing = self.begin_play("until-error", "--abi", abi(), "--ranks", ranks, *options, env=env)
        self.assertTrue(playing.wait_for("running"), playing.text())
        return playing

    def test_without_surviving_a_reducer_that_dies_ends_it(self):
        for scenario_env in ({}, {"SLUICE_THREADS": "0"}):
            with self.subTest(**scenario_env):
                self.addresses.clear()
                self.start_pool(2)
                playing = self.begin_error(env={"SLUICE_SURVIVE": "0", **scenario_env})
                killed = time.monotonic()
                self.reducers[-1].end()
                self.assertEqual(playing.wait(), 0, playing.text())
                self.assertLess(time.monotonic() - killed, 15, playing.text())
                self.assertIn(self.addresses[-1], playing.text())
                self.assertEqual(playing.count("offload ended"), 3, playing.text())
                self.assertEqual(playing.count("goes on"), 0, playing.text())

    def test_the_last_reducer_dies(self):
        self.start_pool(2)
        playing = self.begin_error()
        self.reducers[0].end()
        self.assertTrue(playing.wait_for("goes on after", 3), playing.text())
        killed = time.monotonic()
        self.reducers[1].end()
        self.assertEqual(playing.wait(), 0, playing.text())
        self.assertLess(time.monotonic() - killed, 15, playing.text())
        # Who hears it from another rank first says that rank's words.
        ends = [line for line in playing.lines() if "offload ended" in line]
        self.assertEqual(len(ends), 3, playing.text())
        for line in ends:
            self.assertRegex(line, rf"reducer_lost: .*{self.addresses[1]} was lost: .*; no reducer of the session is left")

    def test_a_rank_dies(self):
        for victim in (0, 2):
            with self.subTest(victim=victim):
                self.addresses.clear()
                self.start_pool(2, *self.IMPATIENT)
                playing = self.begin_error("--dies", victim, env={"SLUICE_RESUME_TIMEOUT": "1s"})
                killed = time.monotonic()
                os.kill(children_of(playing.process.pid)[victim], signal.SIGKILL)
                self.assertEqual(playing.wait(), 0, playing.text())
                self.assertLess(time.monotonic() - killed, 2 + SLACK_S, playing.text())
                self.named(playing, victim)

    def test_a_rank_freezes(self):
        self.start_pool(2, *self.IMPATIENT)
        for victim in (0, 1):
            with self.subTest(victim=victim):
                playing = self.begin_error(env={"SLUICE_RESUME_TIMEOUT": "1s"})
                rank = children_of(playing.process.pid)[victim]
                os.kill(rank, signal.SIGSTOP)
                frozen = time.monotonic()
                self.assertTrue(playing.wait_for("offload ended", 2), playing.text())
                self.assertLess(time.monotonic() - frozen, 3.5 + SLACK_S, playing.text())
                self.named(playing, victim)
                os.kill(rank, signal.SIGCONT)  # woken, it is told too
                self.assertEqual(playing.wait(), 0, playing.text())

    def named(self, playing, victim):
        ends = [line for line in playing.lines() if "offload ended" in line]
        self.assertEqual(len(ends), 2, playing.text())
        for line in ends:
            self.assertRegex(line, rf"offload ended: peer_lost: .*rank {victim}\b")

    def test_a_rank_goes_away_with_requests_open(self):
        self.start_pool(1)
        lines = self.play("abort-one", "--ranks", 3)
        # At once, and not when the reducers have missed that rank for long enough.
        said = [line for line in lines if re.search(r"rank 0 \(.*\): NCCL closed the communicator with requests open", line)]
        self.assertEqual(len(said), 2, lines)

    def test_a_late_rank_is_waited_for(self):
        self.start_pool(1)
        self.play("late", "--ranks", 3, "--late-ms", 3000)

    def test_nodes_that_want_different_things_are_refused(self):
        self.start_pool(2)
        lines = self.play("connect", "--ranks", 3, "--expect", "fail", "--rank-env", "1:SLUICE_SURVIVE=0")
        said = {re.sub(r"^rank \d+: ", "", line) for line in lines if "OFF" in line}
        self.assertEqual(len(said), 1, lines)
        self.assertIn("survive", said.pop())


class Survive(SurvivingPlay):
    """Losses that the traffic outlives: every sum is right, nothing is written where NCCL has its memory back, and what happened is told once."""

    def test_a_reducer_dies(self):
        deaths = ((3, 0, {}), (3, 2, {"SLUICE_THREADS": "0"}), (2, 0, {"SLUICE_THREADS": "0"}), (2, 1, {}))
        for count, victim, env in deaths[:2] if brief() else deaths:
            with self.subTest(count=count, victim=victim, **env):
                playing = self.begin(count, env=env)
                self.reducers[victim].end()
                self.goes_on(playing)
                self.finish(playing, self.addresses[victim])

    def test_all_but_one_die_one_after_the_other(self):
        playing = self.begin(3)
        for i, reducer in enumerate(self.reducers[:2]):
            reducer.end()
            self.goes_on(playing, i + 1)
        self.finish(playing, *self.addresses[:2])

    def test_a_reducer_drains(self):
        for env in ({}, {"SLUICE_THREADS": "0"}):
            with self.subTest(**env):
                playing = self.begin(2, env=env)
                self.reducers[0].signal(signal.SIGTERM)
                self.goes_on(playing)
                self.assertEqual(self.reducers[0].wait(), 0, self.reducers[0].stderr())
                self.assertGreaterEqual(playing.count("leaves the session: it drains"), 1, playing.text())
                self.finish(playing, self.addresses[0], reducers_lost=0)

    def test_connections_break_while_a_rank_that_nobody_drives_computes(self):
        self.start_pool(2, *Traffic.IMPATIENT)
        relays = [Relay(address) for address in self.addresses]
        for relay in relays:
            self.addCleanup(relay.close)
        self.addresses = [relay.address for relay in relays]
        # Late for longer than the reducers wait for a rank that they miss: it must have come back long before.
        playing = self.begin_play("late", "--abi", abi(), "--ranks", 3, "--late-rank", 1, "--late-ms", 4000,
                                  env={"SLUICE_THREADS": "0", "SLUICE_RESUME_TIMEOUT": "1s"})
        self.assertTrue(playing.wait_for("rank 1: late"), playing.text())
        for relay in relays:
            relay.cut()
        self.assertEqual(playing.wait(), 0, playing.text())
        self.assertGreaterEqual(playing.count("connections resumed (reducer"), 3, playing.text())

    def test_a_reducer_freezes(self):
        playing = self.begin(2, *Traffic.IMPATIENT)
        self.reducers[1].signal(signal.SIGSTOP)
        self.goes_on(playing)
        self.assertGreaterEqual(playing.count("was lost: silent for 1500 ms"), 1, playing.text())
        self.finish(playing, self.addresses[1])
        self.reducers[1].signal(signal.SIGCONT)

    def test_a_reducer_freezes_for_less_than_that(self):
        playing = self.begin(2, *Traffic.IMPATIENT)
        self.reducers[1].signal(signal.SIGSTOP)
        pause(0.5)
        self.reducers[1].signal(signal.SIGCONT)
        self.assertTrue(playing.wait_for(": round ", playing.count(": round ") + 2), playing.text())
        self.finish(playing)


if __name__ == "__main__":
    main()
