"""Failures during CollNet's connect and during traffic: one result on all ranks, in bounded time, and never a hang."""

import contextlib
import json
import os
import re
import signal
import time

from nccl_player import BESIDE_POOL, CONNECT_TIMEOUT_S, WITHOUT_POOL, PlayerTest, RecoveryTest, abi, is_brief, main, pause
from relay import Relay
from sluice_process import children_of

# Tolerance beyond the plugin's own deadline, because the test machine may be busy.
SLACK_S = 4
# The nodes exchange whole milliseconds, and the kernel reports the age of a message in its ticks.
CLOCK_ERROR_S = 0.05


def offloaded(path, nodes):
    """Returns the lines of SLUICE_STATS_FILE for a communicator that all nodes closed."""
    lines = [line for line in map(json.loads, path.read_text().splitlines()) if line["kind"] == "offloaded"]
    assert sorted(line["node"] for line in lines) == list(range(nodes)), lines
    return lines


class Connect(PlayerTest):
    def durations(self, lines, answer="refused"):
        """Returns the seconds that connect took on the ranks with this result, by rank."""
        ranks = sorted((int(found[1]), int(found[2]) / 1000) for line in lines
                       if (found := re.search(rf"rank (\d+): {answer} after (\d+) ms", line)))
        self.assertTrue(ranks, lines)
        return [seconds for _, seconds in ranks]

    def expect_refused(self, *options, ranks=3, env=None, within_s=CONNECT_TIMEOUT_S):
        """Expects that connect fails on all ranks in time. Returns the lines."""
        lines = self.run_player("connect", "--ranks", ranks, "--expect", "fail", *options, env=env)
        self.assertLess(max(self.durations(lines)), within_s + SLACK_S, lines)
        return lines

    def reason(self, lines):
        """Returns the logged reason, which must be the same on every rank."""
        reasons = {re.sub(r"^rank \d+: ", "", line) for line in lines if "OFF" in line}
        self.assertEqual(len(reasons), 1, "\n".join(sorted(reasons)))
        return reasons.pop()

    def finish(self, player):
        """Expects that connect failed, or that the traffic recovered from the loss."""
        self.assertEqual(player.wait(), 0, player.text())
        self.assertEqual(player.count("traffic done"), player.count(": connected after"), player.text())

    def test_the_player_detects_different_results(self):
        # All other tests rely on this check: one rank reports the opposite of its result.
        self.start_pool(1)
        for options, how_many in ((("--expect", "ok"), 2), (("--expect", "fail", "--absent-rank", 2, "--close-listener"), 1)):
            lines = self.run_player("connect", "--ranks", 3, "--flipped-rank", 1, *options, expect=1)
            self.assertTrue([line for line in lines if f"connect succeeded on {how_many} ranks only" in line], lines)

    def test_no_reducer_is_reachable(self):
        port = self.reserve_port()
        self.addresses = [f"127.0.0.1:{port}"]
        self.reason(self.expect_refused("--rounds", 2))

    def test_one_reducer_is_not_reachable(self):
        self.start_pool(2)
        port = self.reserve_port()
        self.addresses.append(f"127.0.0.1:{port}")
        self.assertIn(str(port), self.reason(self.expect_refused()))

    def test_one_rank_cannot_reach_one_reducer(self):
        self.start_pool(2)
        port = self.reserve_port()
        other = f"{self.addresses[0]},127.0.0.1:{port}"
        self.reason(self.expect_refused("--rank-env", f"1:SLUICE_REDUCERS={other}"))

    def test_one_rank_has_another_key(self):
        keys = [self.folder / name for name in ("pool.key", "other.key")]
        for key in keys:
            self.run_sluice("keygen", "--out", key)
        self.start_pool(2, "--key-file", keys[0])
        self.run_player("connect", "--ranks", 3, env={"SLUICE_KEY_FILE": str(keys[0])})
        self.reason(self.expect_refused("--rank-env", f"2:SLUICE_KEY_FILE={keys[1]}", env={"SLUICE_KEY_FILE": str(keys[0])}))

    def test_no_rank_has_a_key(self):
        key = self.folder / "pool.key"
        self.run_sluice("keygen", "--out", key)
        self.start_pool(1, "--key-file", key)
        self.assertIn("SLUICE_KEY_FILE", self.reason(self.expect_refused()))

    def test_one_rank_cannot_join_the_nodes_own_reducers(self):
        keys = [self.folder / name for name in ("job.key", "other.key")]
        for key in keys:
            self.run_sluice("keygen", "--out", key)
        env = WITHOUT_POOL | {"SLUICE_KEY_FILE": str(keys[0])}
        self.run_player("connect", "--ranks", 3, env=env)
        self.reason(self.expect_refused("--rank-env", f"2:SLUICE_KEY_FILE={keys[1]}", env=env))

    def test_one_rank_has_another_mode(self):
        self.start_pool(1)
        for env in ({}, WITHOUT_POOL):
            lines = self.expect_refused("--rank-env", "1:SLUICE_COLOCATED=always", env=env)
            self.assertIn("set the same SLUICE_REDUCERS and SLUICE_COLOCATED", self.reason(lines))

    def test_a_rank_freezes_without_a_pool(self):
        for rank in (0, 2):
            with self.subTest(rank=rank):
                env = WITHOUT_POOL | {"SLUICE_CONNECT_TIMEOUT": "1s", "SLUICE_JOIN_TIMEOUT": "1s"}
                player = self.start_player("connect", "--abi", abi(), "--ranks", 3, "--expect", "same", env=env)
                self.assertTrue(player.wait_for("connecting"), player.text())
                pid = children_of(player.process.pid)[rank]
                pause(0.004)
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGSTOP)
                    pause(1)
                    os.kill(pid, signal.SIGCONT)
                self.assertEqual(player.wait(), 0, player.text())

    def test_a_reducer_is_full(self):
        self.start_pool(1)
        self.start_pool(1, "--memory-limit", "64K")
        self.reason(self.expect_refused())

    def test_a_reducer_that_does_not_answer(self):
        self.start_pool(2)
        self.reducers[1].signal(signal.SIGSTOP)
        self.expect_refused()
        self.reducers[1].signal(signal.SIGCONT)

    def test_a_rank_that_never_connects(self):
        self.start_pool(1)
        for absent in (0, 2):
            # The other nodes wait for an absent coordinator slightly longer than the coordinator waits for a node.
            lines = self.expect_refused("--absent-rank", absent, env={"SLUICE_JOIN_TIMEOUT": "2s"}, within_s=2 + 2)
            self.assertGreaterEqual(sorted(self.durations(lines))[1], 2 - CLOCK_ERROR_S, lines)

    def test_does_not_wait_for_a_rank_whose_process_ended(self):
        self.start_pool(1)
        for absent in (0, 2):
            self.expect_refused("--absent-rank", absent, "--close-listener")

    def test_waits_for_a_rank_that_connects_late(self):
        self.start_pool(2)
        for late in (0, 1):
            lines = self.run_player("connect", "--ranks", 3, "--late-rank", late, "--late-until", "waiting", env={"SLUICE_CONNECT_TIMEOUT": "1s"})
            # More than all steps after the connection of the nodes may take.
            self.assertGreaterEqual(sorted(self.durations(lines, "connected"))[1], 1, lines)

    def test_a_rank_that_connects_too_late(self):
        self.start_pool(2)
        env = {"SLUICE_CONNECT_TIMEOUT": "1s", "SLUICE_JOIN_TIMEOUT": "1s"}
        for late in (0, 1):
            lines = self.expect_refused("--late-rank", late, "--late-until", "answered", env=env, within_s=1 + 2)
            durations = self.durations(lines)
            self.assertLess(durations.pop(late), 1, lines)
            self.assertGreaterEqual(min(durations), 1 - CLOCK_ERROR_S, lines)
            # Close to the deadline of the others both results are possible, but all ranks must have the same.
            for late_ms in range(960, 1041, 20):
                self.run_player("connect", "--ranks", 3, "--late-rank", late, "--late-ms", late_ms, "--expect", "same", env=env)

    def test_a_rank_freezes_at_any_moment_of_connect(self):
        self.start_pool(2)
        for moment in range(6):
            with self.subTest(moment=moment):
                player = self.start_player("connect", "--abi", abi(), "--ranks", 3, "--expect", "same",
                                           env={"SLUICE_CONNECT_TIMEOUT": "1s", "SLUICE_JOIN_TIMEOUT": "1s"})
                self.assertTrue(player.wait_for("connecting"), player.text())
                rank = children_of(player.process.pid)[moment % 3]
                pause(moment * 0.002)
                # The rank may have finished.
                with contextlib.suppress(ProcessLookupError):
                    os.kill(rank, signal.SIGSTOP)
                    pause(3.5)  # longer than any rank waits for another rank
                    os.kill(rank, signal.SIGCONT)
                self.assertEqual(player.wait(), 0, player.text())

    def test_a_reducer_freezes_at_any_moment_of_connect(self):
        self.start_pool(2)
        for moment in range(8):
            with self.subTest(moment=moment):
                player = self.start_player("connect", "--abi", abi(), "--ranks", 3, "--expect", "same",
                                           env={"SLUICE_CONNECT_TIMEOUT": "1s"})
                self.assertTrue(player.wait_for("connecting"), player.text())
                pause(moment * 0.001)
                self.reducers[moment % 2].signal(signal.SIGSTOP)
                # If connect succeeded, the frozen reducer is detected during traffic.
                player.wait_for("rank 2: ")
                self.reducers[moment % 2].signal(signal.SIGCONT)
                self.finish(player)

    def test_a_reducer_dies_at_any_moment_of_connect(self):
        for moment in range(16):
            with self.subTest(moment=moment):
                self.addresses.clear()
                self.start_pool(2)
                player = self.start_player("connect", "--abi", abi(), "--ranks", 3, "--expect", "same")
                self.assertTrue(player.wait_for("connecting"), player.text())
                pause(moment * 0.001)
                victim, other = self.reducers[-2:] if moment % 4 else self.reducers[:-3:-1]
                victim.end()
                self.finish(player)
                other.end()


class Traffic(PlayerTest):
    # Reducer options with which a frozen process is detected soon.
    SHORT_TIMEOUTS = ("--heartbeat", "200ms", "--peer-timeout", "1500ms", "--absence-timeout", "2s")

    def begin_error(self, *options, env=None, ranks=3):
        player = self.start_player("until-error", "--abi", abi(), "--ranks", ranks, *options, env=env)
        self.assertTrue(player.wait_for("running"), player.text())
        return player

    def test_without_fault_tolerance_a_lost_reducer_ends_the_session(self):
        for scenario_env in ({}, {"SLUICE_THREADS": "0"}):
            with self.subTest(**scenario_env):
                self.addresses.clear()
                self.start_pool(2)
                player = self.begin_error(env={"SLUICE_SURVIVE": "0", **scenario_env})
                killed = time.monotonic()
                self.reducers[-1].end()
                self.assertEqual(player.wait(), 0, player.text())
                self.assertLess(time.monotonic() - killed, 15, player.text())
                self.assertIn(self.addresses[-1], player.text())
                self.assertEqual(player.count("offload ended"), 3, player.text())
                self.assertEqual(player.count("session resumed"), 0, player.text())

    def test_the_last_reducer_dies(self):
        self.start_pool(2)
        player = self.begin_error()
        self.reducers[0].end()
        self.assertTrue(player.wait_for("session resumed after", 3), player.text())
        killed = time.monotonic()
        self.reducers[1].end()
        self.assertEqual(player.wait(), 0, player.text())
        self.assertLess(time.monotonic() - killed, 15, player.text())
        # A rank that another rank informs first logs the reason of that rank.
        ends = [line for line in player.lines() if "offload ended" in line]
        self.assertEqual(len(ends), 3, player.text())
        for line in ends:
            self.assertRegex(line, rf"reducer_lost: .*{self.addresses[1]} lost: .*; no reducer of the session is left")

    def test_a_rank_dies(self):
        for victim in (0, 2):
            with self.subTest(victim=victim):
                self.addresses.clear()
                self.start_pool(2, *self.SHORT_TIMEOUTS)
                player = self.begin_error("--killed-rank", victim, env={"SLUICE_RESUME_TIMEOUT": "1s"})
                killed = time.monotonic()
                os.kill(children_of(player.process.pid)[victim], signal.SIGKILL)
                self.assertEqual(player.wait(), 0, player.text())
                self.assertLess(time.monotonic() - killed, 2 + SLACK_S, player.text())
                self.expect_lost_rank(player, victim)

    def test_a_rank_dies_without_a_pool(self):
        for victim in (0, 2):
            with self.subTest(victim=victim):
                player = self.begin_error("--killed-rank", victim, env=WITHOUT_POOL | {"SLUICE_RESUME_TIMEOUT": "1s"})
                killed = time.monotonic()
                os.kill(children_of(player.process.pid)[victim], signal.SIGKILL)
                self.assertEqual(player.wait(), 0, player.text())
                # The absence timeout of the other ranks' reducers is 4 s.
                self.assertLess(time.monotonic() - killed, 4 + SLACK_S, player.text())
                self.expect_lost_rank(player, victim)

    def test_a_rank_freezes(self):
        self.start_pool(2, *self.SHORT_TIMEOUTS)
        for victim in (0, 1):
            with self.subTest(victim=victim):
                player = self.begin_error(env={"SLUICE_RESUME_TIMEOUT": "1s"})
                rank = children_of(player.process.pid)[victim]
                os.kill(rank, signal.SIGSTOP)
                frozen = time.monotonic()
                self.assertTrue(player.wait_for("offload ended", 2), player.text())
                self.assertLess(time.monotonic() - frozen, 3.5 + SLACK_S, player.text())
                self.expect_lost_rank(player, victim)
                os.kill(rank, signal.SIGCONT)  # the resumed rank gets the error too
                self.assertEqual(player.wait(), 0, player.text())

    def expect_lost_rank(self, player, victim):
        ends = [line for line in player.lines() if "offload ended" in line]
        self.assertEqual(len(ends), 2, player.text())
        for line in ends:
            self.assertRegex(line, rf"offload ended: peer_lost: .*rank {victim}\b")

    def test_a_rank_closes_with_requests_open(self):
        self.start_pool(1)
        lines = self.run_player("abort-one", "--ranks", 3)
        # Each tests its failed request 10,001 times.
        self.assertEqual(len([line for line in lines if "NET/SLUICE: " in line]), 2, lines)
        # The others are informed at once, not at the deadline of the reducers.
        reasons = [line for line in lines if re.search(r"rank 0 \(.*\): NCCL closed the communicator with requests open", line)]
        self.assertEqual(len(reasons), 2, lines)

    def test_waits_for_a_late_rank(self):
        self.start_pool(1)
        path = self.folder / "stats.jsonl"
        self.run_player("late", "--ranks", 3, "--late-ms", 3000, env={"SLUICE_STATS_FILE": str(path)})
        # Many chunks of two operations wait at the same time for rank 0.
        for line in offloaded(path, nodes=3):
            self.assertEqual(line["slowest_node"], 0, line)
            self.assertTrue(1500 < line["slowest_behind_ms"] <= 1e3 * line["open_seconds"], line)
            if line["node"] != 0:
                self.assertTrue(1500 < line["longest_stall_ms"] <= 1e3 * line["open_seconds"], line)

    def test_nodes_with_different_fault_tolerance_are_refused(self):
        self.start_pool(2)
        lines = self.run_player("connect", "--ranks", 3, "--expect", "fail", "--rank-env", "1:SLUICE_SURVIVE=0")
        reasons = {re.sub(r"^rank \d+: ", "", line) for line in lines if "OFF" in line}
        self.assertEqual(len(reasons), 1, lines)
        self.assertIn("ranks disagree on fault tolerance", reasons.pop())


class Recovery(RecoveryTest):
    """Recovery from losses: every sum is right, no buffer is written after its request is done, and each event is logged once."""

    def test_a_reducer_dies(self):
        deaths = ((3, 0, {}), (3, 2, {"SLUICE_THREADS": "0"}), (2, 0, {"SLUICE_THREADS": "0"}), (2, 1, {}))
        for count, victim, env in deaths[:2] if is_brief() else deaths:
            with self.subTest(count=count, victim=victim, **env):
                player = self.start_traffic(count, env=env)
                self.reducers[victim].end()
                self.expect_recovery(player)
                self.finish(player, self.addresses[victim])

    def test_all_but_one_die_in_turn(self):
        player = self.start_traffic(3)
        for i, reducer in enumerate(self.reducers[:2]):
            reducer.end()
            self.expect_recovery(player, i + 1)
        self.finish(player, *self.addresses[:2])

    def test_the_ranks_go_on_when_all_reducers_die(self):
        player = self.start_traffic(2, env=BESIDE_POOL)
        for stalls, reducer in enumerate(self.reducers, 1):
            reducer.end()
            self.expect_recovery(player, stalls)
        self.finish(player, *self.addresses)

    def test_a_reducer_drains(self):
        for env in ({}, {"SLUICE_THREADS": "0"}):
            with self.subTest(**env):
                player = self.start_traffic(2, env=env)
                self.reducers[0].signal(signal.SIGTERM)
                self.expect_recovery(player)
                self.assertEqual(self.reducers[0].wait(), 0, self.reducers[0].stderr())
                self.assertGreaterEqual(player.count("leaves the session: draining"), 1, player.text())
                self.finish(player, self.addresses[0], reducers_lost=0)

    def test_connections_break_while_a_rank_without_a_thread_computes(self):
        self.start_pool(2, *Traffic.SHORT_TIMEOUTS)
        relays = [Relay(address) for address in self.addresses]
        for relay in relays:
            self.addCleanup(relay.close)
        self.addresses = [relay.address for relay in relays]
        # The rank is late for longer than the absence timeout of the reducers: its connections must resume before that.
        player = self.start_player("late", "--abi", abi(), "--ranks", 3, "--late-rank", 1, "--late-ms", 4000,
                                   env={"SLUICE_THREADS": "0", "SLUICE_RESUME_TIMEOUT": "1s"})
        self.assertTrue(player.wait_for("rank 1: late"), player.text())
        for relay in relays:
            relay.close_connections()
        self.assertEqual(player.wait(), 0, player.text())
        self.assertGreaterEqual(player.count("connections resumed (reducer"), 3, player.text())

    def test_a_reducer_freezes(self):
        path = self.folder / "stats.jsonl"
        player = self.start_traffic(2, *Traffic.SHORT_TIMEOUTS, env={"SLUICE_STATS_FILE": str(path)})
        self.reducers[1].signal(signal.SIGSTOP)
        self.expect_recovery(player)
        self.assertGreaterEqual(player.count(" lost: no heartbeat for 1500 ms"), 1, player.text())
        self.finish(player, self.addresses[1])
        self.reducers[1].signal(signal.SIGCONT)
        # The last heartbeat came up to 200 ms before the reducer froze, and chunks in flight arrived.
        self.expect_stall(path, 1000)

    def test_a_reducer_freezes_shorter_than_the_timeout(self):
        path = self.folder / "stats.jsonl"
        player = self.start_traffic(2, "--heartbeat", "200ms", "--peer-timeout", "10s", env={"SLUICE_STATS_FILE": str(path)})
        self.reducers[1].freeze()
        pause(0.3)  # results that the reducer had sent arrive
        begin = time.monotonic()
        pause(0.5)
        frozen_ms = 1e3 * (time.monotonic() - begin)
        self.reducers[1].signal(signal.SIGCONT)
        self.assertTrue(player.wait_for(": round ", player.count(": round ") + 2), player.text())
        self.finish(player)
        self.expect_stall(path, frozen_ms)

    def expect_stall(self, path, least_ms):
        """Expects on every rank that the longest stall and the waiting time are not longer than the session, and on one a stall of `least_ms`."""
        lines = offloaded(path, nodes=3)
        for line in lines:
            self.assertLessEqual(line["longest_stall_ms"], 1e3 * line["open_seconds"], line)
            self.assertLessEqual(line["slowest_behind_ms"], 1e3 * line["open_seconds"], line)
        self.assertGreaterEqual(max(line["longest_stall_ms"] for line in lines), least_ms, lines)


if __name__ == "__main__":
    main()
