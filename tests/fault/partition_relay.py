"""A relay in front of a reducer that simulates a network partition from some hosts: it forwards nothing and closes nothing.

Bytes sent during the partition are forwarded when it ends, like TCP's retransmissions."""

import contextlib
import socket
import threading

TO, FROM = "to the reducer", "from the reducer"


class PartitionRelay:
    """Listens on a loopback port and forwards all connections to `target`, "host:port". The source address identifies a host."""

    def __init__(self, target):
        host, port = target.rsplit(":", 1)
        self.target = (host, int(port))
        self.listener = socket.create_server(("127.0.0.1", 0), backlog=256)
        self.address = f"127.0.0.1:{self.listener.getsockname()[1]}"
        self.changed = threading.Condition()
        self.blocked = set()  # (host, direction)
        self.held = 0         # reads, ends of stream and connections that were delayed so far
        self.sockets = {self.listener}
        self.closed = False
        threading.Thread(target=self._accept, daemon=True).start()

    def partition(self, host, *directions):
        """From now on nothing is forwarded in these directions, and no connection is made."""
        with self.changed:
            self.blocked |= {(host, direction) for direction in directions}

    def heal(self):
        with self.changed:
            self.blocked.clear()
            self.changed.notify_all()

    def close(self):
        with self.changed:
            self.closed = True
            self.changed.notify_all()
            sockets = list(self.sockets)
        for each in sockets:
            self._shutdown(each, socket.SHUT_RDWR)
        self.listener.close()

    def _wait_until_open(self, host, *directions):
        """Returns when these directions are open; False if the relay was closed."""
        with self.changed:
            needed = [(host, direction) for direction in directions]
            self.held += not self.blocked.isdisjoint(needed)
            self.changed.wait_for(lambda: self.closed or self.blocked.isdisjoint(needed))
            return not self.closed

    @staticmethod
    def _shutdown(each, how):
        with contextlib.suppress(OSError):  # already disconnected
            each.shutdown(how)

    def _accept(self):
        while True:
            try:
                near, (host, _) = self.listener.accept()
            except OSError:
                return
            threading.Thread(target=self._serve, args=(near, host), daemon=True).start()

    def _serve(self, near, host):
        # A TCP handshake needs both directions.
        with self.changed:
            self.sockets.add(near)
        with near:
            if self._wait_until_open(host, TO, FROM):
                with contextlib.suppress(OSError), socket.create_connection(self.target) as far:  # the reducer may refuse it
                    self._forward_both(near, far, host)
        with self.changed:
            self.sockets.discard(near)

    def _forward_both(self, near, far, host):
        with self.changed:
            self.sockets.add(far)
        for each in (near, far):
            each.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        back = threading.Thread(target=self._forward, args=(far, near, host, FROM), daemon=True)
        back.start()
        self._forward(near, far, host, TO)
        back.join()
        with self.changed:
            self.sockets.discard(far)

    def _forward(self, source, sink, host, direction):
        try:
            while data := source.recv(1 << 18):
                if not self._wait_until_open(host, direction):
                    return
                sink.sendall(data)
        except OSError:  # one side broke: the other side must see the end, unless it is partitioned
            self._shutdown(source, socket.SHUT_RD)
        if self._wait_until_open(host, direction):
            self._shutdown(sink, socket.SHUT_WR)
