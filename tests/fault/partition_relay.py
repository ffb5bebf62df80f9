"""A relay in front of a reducer that parts it from some hosts: nothing passes, and nobody is told. What was sent meanwhile passes once they are joined
again, as TCP would send it again then."""

import socket
import threading

TO, FROM = "to the reducer", "from the reducer"


class PartitionRelay:
    """Listens on a port of loopback and passes everything on to `target`, "host:port". Who connects is known by the address it connects from."""

    def __init__(self, target):
        host, port = target.rsplit(":", 1)
        self.target = (host, int(port))
        self.listener = socket.create_server(("127.0.0.1", 0), backlog=256)
        self.address = f"127.0.0.1:{self.listener.getsockname()[1]}"
        self.changed = threading.Condition()
        self.parted = set()  # (host, way)
        self.held = 0        # pieces, ends and connections that have been held up so far
        self.sockets = {self.listener}
        self.closed = False
        threading.Thread(target=self._accept, daemon=True).start()

    def part(self, host, *ways):
        """From now on nothing passes these ways, and no connection is made."""
        with self.changed:
            self.parted |= {(host, way) for way in ways}

    def join(self):
        with self.changed:
            self.parted.clear()
            self.changed.notify_all()

    def close(self):
        with self.changed:
            self.closed = True
            self.changed.notify_all()
            sockets = list(self.sockets)
        for each in sockets:
            self._shut(each, socket.SHUT_RDWR)
        self.listener.close()

    def _hold(self, host, *ways):
        """Returns when these ways are open; False when there is nobody to pass anything any more."""
        with self.changed:
            stopped = [(host, way) for way in ways]
            self.held += not self.parted.isdisjoint(stopped)
            self.changed.wait_for(lambda: self.closed or self.parted.isdisjoint(stopped))
            return not self.closed

    @staticmethod
    def _shut(each, how):
        try:
            each.shutdown(how)
        except OSError:  # nobody is there any more
            pass

    def _accept(self):
        while True:
            try:
                near, (host, _) = self.listener.accept()
            except OSError:
                return
            threading.Thread(target=self._serve, args=(near, host), daemon=True).start()

    def _serve(self, near, host):
        # Of a handshake that is lost one way nothing comes of it either way.
        with self.changed:
            self.sockets.add(near)
        with near:
            if self._hold(host, TO, FROM):
                try:
                    with socket.create_connection(self.target) as far:
                        self._join_up(near, far, host)
                except OSError:  # the reducer takes none: as if its own port refused
                    pass
        with self.changed:
            self.sockets.discard(near)

    def _join_up(self, near, far, host):
        with self.changed:
            self.sockets.add(far)
        for each in (near, far):
            each.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        back = threading.Thread(target=self._pass, args=(far, near, host, FROM), daemon=True)
        back.start()
        self._pass(near, far, host, TO)
        back.join()
        with self.changed:
            self.sockets.discard(far)

    def _pass(self, source, sink, host, way):
        try:
            while data := source.recv(1 << 18):
                if not self._hold(host, way):
                    return
                sink.sendall(data)
        except OSError:  # one of them broke: the other is to see an end, if it can see one
            self._shut(source, socket.SHUT_RD)
        if self._hold(host, way):
            self._shut(sink, socket.SHUT_WR)
