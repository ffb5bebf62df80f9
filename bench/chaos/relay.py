"""A relay in front of a reducer that does harm when told to: breaks connections, turns bits over, holds bytes up."""

import random
import socket
import struct
import threading
import time

# close() sends RST instead of FIN.
RESET = struct.pack("ii", 1, 0)


class Relay:
    """Listens on a port of loopback and passes everything on to `target`, "host:port"."""

    def __init__(self, target):
        host, port = target.rsplit(":", 1)
        self.target = (host, int(port))
        self.listener = socket.create_server(("127.0.0.1", 0), backlog=256)
        self.address = f"127.0.0.1:{self.listener.getsockname()[1]}"
        self.lock = threading.Lock()
        self.pairs = set()
        self.held_until = 0.0
        self.to_corrupt = None  # (pair, random)
        self.flips = 0          # bits turned over so far
        self.passed = {}        # bytes, by pair
        threading.Thread(target=self._accept, daemon=True).start()

    def close(self):
        self.listener.close()
        for pair in self._some(None):
            self._break(pair)

    def cut(self, seed):
        """Breaks one connection, or all of them, with RST."""
        for pair in self._some(random.Random(seed)):
            self._break(pair)

    def corrupt(self, seed):
        """Turns one bit over of what passes next on some connection."""
        with self.lock:
            if self.pairs:
                chosen = random.Random(seed)
                self.to_corrupt = (chosen.choice(sorted(self.pairs, key=id)), chosen)

    def flip(self, seed, flips):
        """The same on a connection that data passes on, where there is one, unless more than `flips` have been turned over. Ask until then."""
        with self.lock:
            busy = sorted((p for p in self.pairs if self.passed.get(p, 0) > 1 << 20), key=id)
            if busy and self.flips == flips:
                chosen = random.Random(seed)
                self.to_corrupt = (chosen.choice(busy), chosen)
            return self.flips > flips

    def hold(self, seconds):
        """Nothing passes for so long."""
        self.held_until = time.monotonic() + seconds

    def _some(self, chosen):
        with self.lock:
            pairs = sorted(self.pairs, key=id)
        return pairs if chosen is None or not pairs or chosen.random() < 0.3 else [chosen.choice(pairs)]

    def _break(self, pair):
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
                # As if the reducer's own port refused.
                near.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, RESET)
                near.close()
                continue
            pair = (near, far)
            with self.lock:
                self.pairs.add(pair)
            for each in pair:
                each.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            done = [threading.Thread(target=self._pass, args=(pair, a, b), daemon=True) for a, b in ((near, far), (far, near))]
            for each in done:
                each.start()
            threading.Thread(target=self._bury, args=(pair, done), daemon=True).start()

    def _bury(self, pair, threads):
        for each in threads:
            each.join()
        with self.lock:
            self.pairs.discard(pair)
            self.passed.pop(pair, None)
            if self.to_corrupt and self.to_corrupt[0] == pair:
                self.to_corrupt = None
        for each in pair:
            each.close()

    def _pass(self, pair, source, sink):
        try:
            while data := source.recv(1 << 18):
                wait = self.held_until - time.monotonic()
                if wait > 0:
                    time.sleep(wait)
                with self.lock:
                    harm = self.to_corrupt if self.to_corrupt and self.to_corrupt[0] == pair else None
                    self.passed[pair] = self.passed.get(pair, 0) + len(data)
                    if harm:
                        self.to_corrupt = None
                        self.flips += 1
                if harm:
                    data = bytearray(data)
                    data[harm[1].randrange(len(data))] ^= 1 << harm[1].randrange(8)
                sink.sendall(data)
            sink.shutdown(socket.SHUT_WR)
        except OSError:
            self._break(pair)
