"""`sluice bench latency`: quantiles by size, a bare star beside them, and what happens when either is not what it should be."""

import select
import socket
import struct

from relay import Relay
from sluice_process import DEADLINE_S, SluiceTest, closed_port, main, until

QUICK = ("bench", "latency", "-b", "8", "-e", "512", "-f", "8", "-n", "20", "-w", "2", "--batch", "8", "--workers", "2")
SIZES = [8, 64, 512]


def rows_of(text):
    return [line.split() for line in text.splitlines() if line and not line.startswith("#")]


class WithStar(SluiceTest):
    def start_star(self):
        port_file = self.folder / "star-port"
        star = self.start("bench", "star-server", "--listen", "127.0.0.1:0", "--port-file", port_file)
        until("the star says its port", lambda: port_file.exists() or star.ended())
        return star, f"127.0.0.1:{port_file.read_text().strip()}"

    def run_ranks(self, arguments, address, session, expect=0):
        ranks = [self.start(*arguments, "--rank", rank, "--session", session, "--connect", address) for rank in (0, 1)]
        self.assertEqual([rank.wait() for rank in ranks], [expect, expect], ranks[0].stderr() + ranks[1].stderr())
        return ranks


class Latency(WithStar):
    def check_times(self, times):
        self.assertEqual(times["count"], 20)
        self.assertGreater(times["p50"], 0)
        self.assertLessEqual(times["p50"], times["p99"])
        self.assertLessEqual(times["p99"], times["p999"])

    def test_json_and_csv_hold_both_and_their_ratio(self):
        csv = self.folder / "result.csv"
        result = self.run_json(*QUICK, "--with-star", "--csv", csv)
        self.assertEqual(result["schema"], "sluice.bench.latency/1")
        self.check_machine(result)
        self.assertEqual(result["config"]["progress_threads"], 0)
        self.assertEqual(len(result["config"]["hosts"]), 2)
        self.assertEqual([row["size"] for row in result["results"]], SIZES)
        for row in result["results"]:
            self.check_times(row["sluice"])
            self.check_times(row["star"])
            self.assertAlmostEqual(row["ratio_p50"], row["sluice"]["p50"] / row["star"]["p50"], places=6)
            self.assertAlmostEqual(row["ratio_p99"], row["sluice"]["p99"] / row["star"]["p99"], places=6)
            self.assertEqual((row["checked"], row["nwrong"]), (2 * 3, 0))  # of two ranks the last of 8, 8 and 4
        lines = csv.read_text().splitlines()
        self.assertEqual([line.count(",") for line in lines], [8] * 4)
        self.assertEqual([line.split(",")[0] for line in lines[1:]], [str(size) for size in SIZES])

    def test_the_table_has_a_column_for_each(self):
        with_star = self.run_sluice(*QUICK, "--with-star")
        self.assertEqual([(row[0], row[-1], len(row)) for row in rows_of(with_star.stdout)], [(str(size), "0", 10) for size in SIZES])
        self.assertIn("# machine: ", with_star.stdout)
        alone = self.run_sluice(*QUICK)
        self.assertEqual([(row[0], row[-1], len(row)) for row in rows_of(alone.stdout)], [(str(size), "0", 5) for size in SIZES])

    def test_without_a_star_nothing_is_said_of_one(self):
        result = self.run_json(*QUICK, "--threads", "1")
        self.assertEqual([row["star"] for row in result["results"]], [None] * 3)
        self.assertIsNone(result["config"]["star"])
        self.assertNotIn("ratio_p50", result["results"][0])

    def test_a_star_started_by_hand_serves_run_after_run(self):
        _, reducer = self.start_reducer()
        star, star_address = self.start_star()
        for session in ("a" * 32, "b" * 32):
            ranks = self.run_ranks((*QUICK, "--star", star_address), reducer, session)
            self.assertEqual([len(row) for row in rows_of(ranks[0].stdout())], [10] * 3)
            self.assertEqual(ranks[1].stdout(), "")
        self.assertFalse(star.ended(), star.stderr())

    def test_wrong_data_is_counted_and_exit_2(self):
        _, reducer = self.start_reducer("--no-crc")
        relay = Relay(reducer, damage_from=4096)
        self.addCleanup(relay.close)
        arguments = ("bench", "latency", "-b", "4K", "-e", "4K", "-n", "10", "--batch", "5", "--workers", "2", "--no-crc")
        ranks = self.run_ranks(arguments, relay.address, "f" * 32, expect=2)
        self.assertEqual([row[-1] for row in rows_of(ranks[0].stdout())], ["4"])  # one of each rank and batch
        self.assertIn("# Out of bounds values : 4 FAILED", ranks[0].stdout())

    def test_options_that_make_no_sense_are_refused(self):
        for arguments in (("-b", "2"), ("-b", "64", "-e", "8"), ("-f", "1"), ("-n", "0"), ("--batch", "0"), ("--star", "a:1,b:2"),
                          ("--with-star", "--connect", "127.0.0.1:1"), ("--with-star", "--star", "127.0.0.1:1"),
                          ("--with-star", "--rank", "0", "--session", "0" * 32, "--connect", "127.0.0.1:1"), ("--threads", "2")):
            with self.subTest(arguments):
                done = self.run_sluice("bench", "latency", *arguments, expect=64)
                self.assertEqual(done.stderr.count("\n"), 1, done.stderr)

    def test_a_star_that_is_not_there_is_exit_69(self):
        holder, port = closed_port()
        self.addCleanup(holder.close)
        done = self.run_sluice(*QUICK, "--star", f"127.0.0.1:{port}", expect=69)
        self.assertIn("star: ", done.stderr)


class StarServer(WithStar):
    def connect(self, address, workers, chunk):
        """A worker of a star with one chunk in flight, greeted."""
        host, port = address.split(":")
        worker = socket.create_connection((host, int(port)))
        self.addCleanup(worker.close)
        worker.settimeout(DEADLINE_S)
        worker.sendall(b"SLCSTAR1" + struct.pack("<IIQ", workers, 1, chunk))
        return worker

    def test_answers_when_all_have_sent_and_not_before(self):
        _, address = self.start_star()
        workers = [self.connect(address, 3, 1000) for _ in range(3)]
        for _ in range(2):
            for worker in workers[:2]:
                worker.sendall(bytes(1000))
            workers[2].sendall(bytes(999))
            self.assertEqual(select.select(workers, [], [], 0.1)[0], [])
            workers[2].sendall(bytes(1))
            self.assertEqual([self.read(worker, 1000) for worker in workers], [1000] * 3)

    def read(self, worker, count):
        """How many of `count` bytes come before the end."""
        got = 0
        while got < count and (data := worker.recv(count - got)):
            got += len(data)
        return got

    def test_a_worker_that_ends_half_way_ends_its_group_alone(self):
        star, address = self.start_star()
        leaves, stays = self.connect(address, 2, 8), self.connect(address, 2, 8)
        for worker in (leaves, stays):
            worker.sendall(bytes(8))
        self.assertEqual([self.read(leaves, 8), self.read(stays, 8)], [8, 8])
        stays.sendall(bytes(8))
        leaves.close()
        self.assertEqual(self.read(stays, 8), 0)
        both = [self.connect(address, 2, 4) for _ in range(2)]
        for worker in both:
            worker.sendall(bytes(4))
        self.assertEqual([self.read(worker, 4) for worker in both], [4, 4])
        self.assertFalse(star.ended(), star.stderr())

    def test_a_stranger_at_the_star_is_sent_away(self):
        _, reducer = self.start_reducer()
        star, star_address = self.start_star()
        host, port = star_address.split(":")
        for words in (b"GET / HTTP/1.0\r\n\r\n123456", b"SLCSTAR1" + b"\xff" * 16, b"short"):
            with socket.create_connection((host, int(port))) as stranger:
                stranger.sendall(words)
                stranger.shutdown(socket.SHUT_WR)
                self.assertEqual(stranger.recv(1), b"")
        self.run_ranks((*QUICK, "--star", star_address), reducer, "c" * 32)
        self.assertEqual(star.stderr().count("is sent away"), 3, star.stderr())

    def test_a_port_in_use_is_exit_75(self):
        _, address = self.start_star()
        self.run_sluice("bench", "star-server", "--listen", address, expect=75)


if __name__ == "__main__":
    main()
