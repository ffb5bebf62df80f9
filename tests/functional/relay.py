"""A TCP relay between workers and a reducer that injects faults in the direction of the workers: it delays or corrupts results."""

import contextlib
import socket
import threading
import time

HEADER_BYTES = 64  # docs/reference/protocol.md section 2
RESULT = 33


class Relay:
    """Listens at `address` and forwards connections to `target`, both "host:port". `bytes_per_second`: rate limit per connection; 0:
    none. `corrupt_from`: flips a bit in results of at least this many bytes; 0: none. Requires sessions without payload checksums."""

    def __init__(self, target, bytes_per_second=0, corrupt_from=0):
        self.target = target.rsplit(":", 1)
        self.bytes_per_second = bytes_per_second
        self.corrupt_from = corrupt_from
        self.listener = socket.create_server(("127.0.0.1", 0))
        self.address = f"127.0.0.1:{self.listener.getsockname()[1]}"
        self.sockets = [self.listener]
        threading.Thread(target=self._accept, daemon=True).start()

    def close(self):
        self._shutdown(self.sockets)
        for each in self.sockets:
            each.close()

    def close_connections(self):
        """Closes all connections. The relay still accepts new ones."""
        self._shutdown(self.sockets[1:])

    @staticmethod
    def _shutdown(sockets, how=socket.SHUT_RDWR):
        for each in sockets:
            with contextlib.suppress(OSError):
                each.shutdown(how)

    def _accept(self):
        while True:
            try:
                near, _ = self.listener.accept()
                far = socket.create_connection((self.target[0], int(self.target[1])))
            except OSError:
                return
            self.sockets += [near, far]
            for each in (near, far):
                each.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            threading.Thread(target=self._forward, args=(near, far, self._blocks), daemon=True).start()
            threading.Thread(target=self._forward, args=(far, near, self._frames if self.corrupt_from else self._blocks), daemon=True).start()

    def _forward(self, source, sink, read):
        with contextlib.suppress(OSError):
            for data in read(source):
                if self.bytes_per_second:
                    time.sleep(len(data) / self.bytes_per_second)
                sink.sendall(data)
        self._shutdown([sink], socket.SHUT_WR)

    @staticmethod
    def _blocks(source):
        while data := source.recv(65536):
            yield data

    def _frames(self, source):
        reader = source.makefile("rb")
        while len(header := reader.read(HEADER_BYTES)) == HEADER_BYTES:
            payload_bytes = int.from_bytes(header[48:52], "little")
            rest = bytearray(reader.read(8 * header[8] + payload_bytes))
            if header[5] == RESULT and payload_bytes >= self.corrupt_from:
                rest[-1] ^= 0x40
            yield header + bytes(rest)
