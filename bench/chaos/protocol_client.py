"""A client of reducers written from docs/reference/protocol.md alone, for processes that keep or break its rules at any point."""

import hashlib
import hmac
import os
import socket
import struct

MAGIC = 0x43494C53
HELLO, WELCOME, JOIN, JOINED, ATTACH, ATTACHED, REFUSED = 1, 2, 3, 4, 5, 6, 7
VOTE, VERDICT, COMMIT, HEARTBEAT, LEAVE, ABORT = 16, 17, 18, 19, 20, 22
STATUS_QUERY, STATUS_REPLY, VERDICT_QUERY, GATHER, GATHERED = 23, 24, 25, 26, 27
STORE, STORE_READY, MODEL_QUERY, PUSH, PULL, CURRENT = 64, 65, 66, 68, 71, 73
CONTROL, LANE, STATUS, VERDICT_OF, GATHER_OF, STORE_OF = 0, 1, 2, 3, 4, 5  # purposes
HEADER_BYTES = 64

_TABLE = []
for _byte in range(256):
    for _ in range(8):
        _byte = _byte >> 1 ^ (0x82F63B78 if _byte & 1 else 0)
    _TABLE.append(_byte)


class Ended(Exception):
    """The reducer closed the connection, did not answer in time, or refused. str() is why."""


def crc32c(data):
    crc = 0xFFFFFFFF
    for byte in data:
        crc = crc >> 8 ^ _TABLE[(crc ^ byte) & 0xFF]
    return crc ^ 0xFFFFFFFF


def frame(kind, body, handle=0, length=None):
    """Returns a control frame. `length`: what the header claims, if it is not the length of the body."""
    header = struct.pack("<IBBHBBHII", MAGIC, 1, kind, 0, 0, 0, 0, handle, 0) + bytes(28)
    header += struct.pack("<III", len(body) if length is None else length, 0, 0)
    return header + struct.pack("<I", crc32c(header)) + body


def text(value):
    return struct.pack("<H", len(value)) + value.encode()


def numbers(code, values):
    return struct.pack(f"<H{len(values)}{code}", len(values), *values)


def job_token(key, job):
    """`key`: the 32 bytes of the pool key."""
    return hmac.digest(key, b"sluice job token\0" + job.encode() + b"\0", hashlib.sha256)


class Connection:
    """One connection. Its calls block for at most `timeout` seconds; exceptions are Ended and OSError."""

    def __init__(self, address, timeout=5.0):
        host, port = address.rsplit(":", 1)
        self.socket = socket.create_connection((host, int(port)), timeout=timeout)
        self.handle = 0
        self._proof = None  # of this connection's HELLO and WELCOME: from the view hash to the mac

    def send(self, data):
        self.socket.sendall(data)

    def send_message(self, kind, body):
        self.send(frame(kind, body, self.handle))

    def receive(self, *kinds):
        """Returns (type, body) of the next frame of these types, and skips heartbeats. A refusal raises Ended."""
        while True:
            header = self._exactly(HEADER_BYTES)
            kind, extensions, length = header[5], header[8] * 8, struct.unpack_from("<I", header, 48)[0]
            body = self._exactly(extensions + length)[extensions:]
            if kind in kinds:
                return kind, body
            if kind in (REFUSED, ABORT):
                code, _, size = struct.unpack_from("<HIH", body)
                raise Ended(f"{code}: {body[8:8 + size].decode(errors='replace')}")
            if kind != HEARTBEAT:
                raise Ended(f"type {kind}")

    def _exactly(self, count):
        data = b""
        while len(data) < count:
            more = self.socket.recv(count - len(data))
            if not more:
                raise Ended("closed")
            data += more
        return data

    def greet(self, purpose, job, token=None, session=bytes(16), rank=0, ranks=1, lane=0, hello=None):
        """Sends HELLO and reads WELCOME. `hello`: sends this in its place. Returns the reducer's id."""
        nonce = os.urandom(32)
        key_id = hmac.digest(token, b"sluice key id\0" + nonce, hashlib.sha256)[:8] if token else bytes(8)
        greeting = struct.pack("<BBBBIII", 1, 1, purpose, 0, rank, ranks, lane) + session + bytes(16) + nonce + text(job) + text("") + key_id
        self.send(frame(HELLO, greeting) if hello is None else hello)
        _, welcome = self.receive(WELCOME)
        without_mac = welcome[:56] + bytes(32) + welcome[88:]
        if token:
            self._proof = lambda view_hash: hmac.digest(token, b"sluice client\0" + greeting + without_mac + struct.pack("<Q", view_hash), hashlib.sha256)
        else:
            self._proof = lambda view_hash: bytes(32)
        return struct.unpack_from("<Q", welcome, 8)[0]

    def mac(self, view_hash=0):
        return self._proof(view_hash)

    def join(self, reducer, window=16384, slot=4096, view_hash=7, timeout_ms=10_000):
        """Joins a session of this reducer alone, with one lane."""
        body = struct.pack("<QIIHHI", view_hash, window, slot, 1, 0, timeout_ms) + numbers("Q", [reducer]) + self.mac(view_hash)
        self.send_message(JOIN, body)
        self.handle = struct.unpack_from("<I", self.receive(JOINED)[1])[0]

    def attach(self, handle, view_hash=7):
        self.handle = handle
        self.send_message(ATTACH, struct.pack("<IQ", handle, view_hash) + self.mac(view_hash))
        self.receive(ATTACHED)

    def abandon(self):
        """Closes with a reset, as a process that is killed with unread data."""
        self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        self.socket.close()

    def close(self):
        self.socket.close()


def open_session(address, job, token, session=None):
    """Starts a session of one rank, and returns its control and lane connections."""
    session = session or os.urandom(16)
    control, lane = Connection(address), None
    try:
        reducer = control.greet(CONTROL, job, token, session)
        control.join(reducer)
        lane = Connection(address)
        lane.greet(LANE, job, token, session)
        lane.attach(control.handle)
        control.send_message(VOTE, struct.pack("<BHIH", 1, 0, 0xFFFFFFFF, 0))
        incarnation = control.receive(VERDICT)[1][1:9]
        control.send_message(COMMIT, incarnation)
        lane.send_message(COMMIT, incarnation)
        return control, lane
    except BaseException:
        control.close()
        if lane is not None:
            lane.close()
        raise
