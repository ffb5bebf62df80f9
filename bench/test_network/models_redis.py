"""Class RedisModels averages and exchanges tensors through Redis servers, as the ranks of models.py do it with models: the nearest that a program
can do without code in the server. Raw RESP on sockets, so no package is needed."""

import os
import socket
from concurrent.futures import ThreadPoolExecutor

import numpy


class Connection:
    def __init__(self, address):
        host, port = address.rsplit(":", 1)
        self._socket = socket.create_connection((host, int(port)), timeout=120)
        self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)

    def call(self, *arguments, into=None):
        """Sends a command and returns its answer; a bulk answer is written to `into`, if given, and must have its size."""
        self._socket.sendall(b"*%d\r\n" % len(arguments))
        for argument in arguments:
            data = memoryview(argument.encode() if isinstance(argument, str) else argument).cast("B")
            self._socket.sendall(b"$%d\r\n" % len(data))
            self._socket.sendall(data)
            self._socket.sendall(b"\r\n")
        return self._answer(into)

    def _answer(self, into):
        kind, rest = self._line()
        if kind == b"-":
            raise ValueError(f"redis: {rest.decode()}")
        if kind == b"*":
            return [self._answer(None) for _ in range(int(rest))]
        if kind != b"$":
            return rest
        data = memoryview(into).cast("B") if into is not None else memoryview(bytearray(int(rest)))
        if len(data) != int(rest):
            raise ValueError(f"redis: {int(rest)} bytes; expected {len(data)}")
        self._receive(data)
        self._receive(memoryview(bytearray(2)))
        return bytes(data) if into is None else None

    def _line(self):
        line = b""
        while not line.endswith(b"\r\n"):
            byte = self._socket.recv(1)
            if not byte:
                raise ConnectionError("redis: connection closed")
            line += byte
        return line[:1], line[1:-2]

    def _receive(self, view):
        while view:
            count = self._socket.recv_into(view)
            if count == 0:
                raise ConnectionError("redis: connection closed")
            view = view[count:]


class Tensor:
    """One tensor: a shard at each server, and connections of its own. Worker w averages part w of every shard."""

    def __init__(self, name, elements, rank, ranks):
        self._name, self._rank, self._ranks = name, rank, ranks
        self._servers = [Connection(address) for address in os.environ["REDIS"].split(",")]
        self._threads = ThreadPoolExecutor(len(self._servers))
        self._part = elements // len(self._servers) // ranks
        shape = (len(self._servers), ranks, self._part)
        self._delta = numpy.full(shape, rank + 1, "float32")
        self._other = numpy.empty((len(self._servers), self._part), "float32")
        self.values = numpy.ones(shape, "float32")
        self._steps = 0

    def step(self):
        self._steps += 1
        self._at_all(self._push)
        self._wait_for_all("pushed")
        self._at_all(self._average)
        self._wait_for_all("averaged")
        self._at_all(self._pull)
        x = self.values
        if not (x[0, 0, 0] == x[-1, -1, -1] == 1 + self._steps * (self._ranks + 1) / 2):
            raise ValueError(f"tensor {self._name} has {x[0, 0, 0]}, {x[-1, -1, -1]} after {self._steps} steps")

    def _at_all(self, call):
        list(self._threads.map(call, range(len(self._servers))))

    def _push(self, server):
        self._servers[server].call("SET", f"{self._name}:delta:{self._rank}", self._delta[server])

    def _others(self):
        return [(self._rank + i) % self._ranks for i in range(1, self._ranks)]

    def _average(self, server):
        total = self._delta[server, self._rank].copy()
        size = 4 * self._part
        for worker in self._others():
            self._servers[server].call("GETRANGE", f"{self._name}:delta:{worker}", str(self._rank * size), str((self._rank + 1) * size - 1), into=self._other[server])
            total += self._other[server]
        self.values[server, self._rank] += total / self._ranks
        self._servers[server].call("SET", f"{self._name}:version:{self._rank}", self.values[server, self._rank])

    def _pull(self, server):
        for worker in self._others():
            self._servers[server].call("GET", f"{self._name}:version:{worker}", into=self.values[server, worker])

    def _wait_for_all(self, event):
        key = f"{self._name}:{event}:{self._steps}"
        if int(self._servers[0].call("INCR", key)) == self._ranks:
            self._servers[0].call("RPUSH", f"{key}:all", *["1"] * self._ranks)
        self._servers[0].call("BLPOP", f"{key}:all", "0")


class RedisModels:
    def __init__(self, settings, rank, ranks):
        elements = settings["bytes"] // 4 // settings["models"]
        self._tensors = [Tensor(f"m{i}", elements, rank, ranks) for i in range(settings["models"])]

    def step(self, index):
        self._tensors[index].step()

    def value(self):
        return [float(tensor.values[-1, -1, -1]) for tensor in self._tensors]
