"""Tests `sluice bench latency`: quantiles by size, the comparison with a bare star, and the handling of errors."""

import select
import socket
import struct

from relay import Relay
from sluice_process import DEADLINE_S, SluiceTest, main, rows_of

QUICK = ("bench", "latency", "-b", "8", "-e", "512", "-f", "8", "-n", "20", "-w", "2", "--batch", "8", "--workers", "2")
SIZES = [8, 64, 512]


class StarFixture(SluiceTest):
    def start_star(self):
        return self.start_server(("bench", "star-server"))

    def run_ranks(self, arguments, address, session, expect=0):
        ranks = self.start_ranks(address, *arguments, session=session)
        self.expect_ends(ranks, expect)
        return ranks


class Latency(StarFixture):
    def check_times(self, times):
        self.assertEqual(times["count"], 20)
        self.assertGreater(times["p50"], 0)
        self.assertLessEqual(times["p50"], times["p99"])
        self.assertLessEqual(times["p99"], times["p999"])

    def test_json_and_csv_contain_both_and_their_ratio(self):
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
            self.assertEqual((row["checked"], row["nwrong"]), (2 * 3, 0))  # for two ranks, the last operation of batches of 8, 8 and 4
        lines = csv.read_text().splitlines()
        self.assertEqual([line.count(",") for line in lines], [8] * 4)
        self.assertEqual([line.split(",")[0] for line in lines[1:]], [str(size) for size in SIZES])

    def test_table_has_columns_for_both(self):
        with_star = self.run_sluice(*QUICK, "--with-star")
        self.assertEqual([(row[0], row[-1], len(row)) for row in rows_of(with_star.stdout)], [(str(size), "0", 10) for size in SIZES])
        self.assertIn("# machine: ", with_star.stdout)
        alone = self.run_sluice(*QUICK)
        self.assertEqual([(row[0], row[-1], len(row)) for row in rows_of(alone.stdout)], [(str(size), "0", 5) for size in SIZES])

    def test_without_a_star_the_result_has_none(self):
        result = self.run_json(*QUICK, "--threads", "1")
        self.assertEqual([row["star"] for row in result["results"]], [None] * 3)
        self.assertIsNone(result["config"]["star"])
        self.assertNotIn("ratio_p50", result["results"][0])

    def test_star_server_serves_several_runs(self):
        _, reducer = self.start_reducer()
        star, star_address = self.start_star()
        for session in ("a" * 32, "b" * 32):
            ranks = self.run_ranks((*QUICK, "--star", star_address), reducer, session)
            self.assertEqual([len(row) for row in rows_of(ranks[0].stdout())], [10] * 3)
            self.assertEqual(ranks[1].stdout(), "")
        self.assertFalse(star.ended(), star.stderr())

    def test_wrong_data_is_counted_and_exit_2(self):
        _, reducer = self.start_reducer("--no-crc")
        relay = Relay(reducer, corrupt_from=4096)
        self.addCleanup(relay.close)
        arguments = ("bench", "latency", "-b", "4K", "-e", "4K", "-n", "10", "--batch", "5", "--workers", "2", "--no-crc")
        ranks = self.run_ranks(arguments, relay.address, "f" * 32, expect=2)
        self.assertEqual([row[-1] for row in rows_of(ranks[0].stdout())], ["4"])  # one per rank and batch
        self.assertIn("# Out of bounds values : 4 FAILED", ranks[0].stdout())

    def test_invalid_options_are_refused(self):
        self.expect_usage_errors(("bench", "latency"), (
            ("-b", "2"), ("-b", "64", "-e", "8"), ("-f", "1"), ("-n", "0"), ("--batch", "0"), ("--star", "a:1,b:2"),
            ("--with-star", "--connect", "127.0.0.1:1"), ("--with-star", "--star", "127.0.0.1:1"),
            ("--with-star", "--rank", "0", "--session", "0" * 32, "--connect", "127.0.0.1:1"), ("--threads", "2")))

    def test_unreachable_star_is_exit_69(self):
        port = self.reserve_port()
        self.expect_error(69, "star: ", *QUICK, "--star", f"127.0.0.1:{port}")


class StarServer(StarFixture):
    def connect(self, address, workers, chunk):
        """Connects a worker with one chunk in flight and sends the handshake."""
        host, port = address.split(":")
        worker = socket.create_connection((host, int(port)))
        self.addCleanup(worker.close)
        worker.settimeout(DEADLINE_S)
        worker.sendall(b"SLCSTAR1" + struct.pack("<IIQ", workers, 1, chunk))
        return worker

    def test_answers_only_after_all_have_sent(self):
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
        """Reads up to `count` bytes or the end of the connection. Returns the number of bytes."""
        received = 0
        while received < count and (data := worker.recv(count - received)):
            received += len(data)
        return received

    def test_worker_that_disconnects_ends_only_its_group(self):
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

    def test_foreign_connections_are_refused(self):
        _, reducer = self.start_reducer()
        star, star_address = self.start_star()
        host, port = star_address.split(":")
        for request in (b"GET / HTTP/1.0\r\n\r\n123456", b"SLCSTAR1" + b"\xff" * 16, b"short"):
            with socket.create_connection((host, int(port))) as client:
                client.sendall(request)
                client.shutdown(socket.SHUT_WR)
                self.assertEqual(client.recv(1), b"")
        self.run_ranks((*QUICK, "--star", star_address), reducer, "c" * 32)
        self.assertEqual(star.stderr().count(" refused: "), 3, star.stderr())

    def test_port_in_use_is_exit_75(self):
        _, address = self.start_star()
        self.run_sluice("bench", "star-server", "--listen", address, expect=75)


if __name__ == "__main__":
    main()
