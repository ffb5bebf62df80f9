"""A TCP relay in front of a reducer that injects faults: resets connections, flips bits, delays bytes."""

import random
import socket
import struct
import threading
import time

# SO_LINGER with timeout 0: close() sends RST instead of FIN.
RESET = struct.pack("ii", 1, 0)


class Relay:
    """Listens on a loopback port and forwards all connections to `target`, "host:port"."""

    def __init__(self, target):
        host, port = target.rsplit(":", 1)
        self.target = (host, int(port))
        self.listener = socket.create_server(("127.0.0.1", 0), backlog=256)
        self.address = f"127.0.0.1:{self.listener.getsockname()[1]}"
        self.lock = threading.Lock()
        self.pairs = set()
        self.delay_until = 0.0
        self.to_corrupt = None  # (pair, random)
        self.flips = 0          # number of flipped bits
        self.forwarded = {}     # bytes, by pair
        threading.Thread(target=self._accept, daemon=True).start()

    def close(self):
        self.listener.close()
        for pair in self._select(None):
            self._reset(pair)

    def reset_connections(self, seed):
        """Resets one connection, or all of them, with RST."""
        for pair in self._select(random.Random(seed)):
            self._reset(pair)

    def corrupt_any(self, seed):
        """Flips one bit of the next bytes on a random connection."""
        with self.lock:
            if self.pairs:
                chosen = random.Random(seed)
                self.to_corrupt = (chosen.choice(sorted(self.pairs, key=id)), chosen)

    def flip(self, seed, flips):
        """Flips one bit on a random connection with data, unless more than `flips` bits are flipped. Returns True when the bit is
        flipped; call it again until then."""
        with self.lock:
            busy = sorted((p for p in self.pairs if self.forwarded.get(p, 0) > 1 << 20), key=id)
            if busy and self.flips == flips:
                chosen = random.Random(seed)
                self.to_corrupt = (chosen.choice(busy), chosen)
            return self.flips > flips

    def delay(self, seconds):
        """Forwards no bytes for this time."""
        self.delay_until = time.monotonic() + seconds

    def _select(self, chosen):
        """Returns one random connection or all of them; all without a random generator."""
        with self.lock:
            pairs = sorted(self.pairs, key=id)
        return pairs if chosen is None or not pairs or chosen.random() < 0.3 else [chosen.choice(pairs)]

    def _reset(self, pair):
        for each in pair:
            try:
                each.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, RESET)
                each.shutdown(socket.SHUT_RDWR)
            except OSError:
                pass

    def _accept(self):
        while True:
            try:
                near, _ = self.listener.accept()
            except OSError:
                return
            try:
                far = socket.create_connection(self.target)
            except OSError:
                # Resets the connection, as if the port of the reducer refused it.
                near.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, RESET)
                near.close()
                continue
            pair = (near, far)
            with self.lock:
                self.pairs.add(pair)
            for each in pair:
                each.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            done = [threading.Thread(target=self._forward, args=(pair, a, b), daemon=True) for a, b in ((near, far), (far, near))]
            for each in done:
                each.start()
            threading.Thread(target=self._clean_up, args=(pair, done), daemon=True).start()

    def _clean_up(self, pair, threads):
        for each in threads:
            each.join()
        with self.lock:
            self.pairs.discard(pair)
            self.forwarded.pop(pair, None)
            if self.to_corrupt and self.to_corrupt[0] == pair:
                self.to_corrupt = None
        for each in pair:
            each.close()

    def _forward(self, pair, source, sink):
        try:
            while data := source.recv(1 << 18):
                wait = self.delay_until - time.monotonic()
                if wait > 0:
                    time.sleep(wait)
                with self.lock:
                    corruption = self.to_corrupt if self.to_corrupt and self.to_corrupt[0] == pair else None
                    self.forwarded[pair] = self.forwarded.get(pair, 0) + len(data)
                    if corruption:
                        self.to_corrupt = None
                        self.flips += 1
                if corruption:
                    data = bytearray(data)
                    data[corruption[1].randrange(len(data))] ^= 1 << corruption[1].randrange(8)
                sink.sendall(data)
            sink.shutdown(socket.SHUT_WR)
        except OSError:
            self._reset(pair)
