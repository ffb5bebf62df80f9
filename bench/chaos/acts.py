"""The acts of neighbour.py: what strangers and neighbours do wrong at a reducer, by the protocol alone."""

import random
import re
import resource
import signal
import struct

import protocol_client as protocol

HELD = 64  # connections that an act may add at once
JOB, NEIGHBOUR = "checked", "neighbour"  # the job whose sums are checked, and that of the neighbours


class Client:
    """What the acts need. It holds connections, oldest first out. The last of the addresses keeps models."""

    def __init__(self, addresses, seed, held, token):
        self.random, self.addresses, self.limit, self.token = random.Random(seed), addresses, held, token
        self.held, self.counts = [], {}

    def act(self, name):
        try:
            ACTS[name](self)
            outcome = "done"
        except protocol.Ended as ended:
            outcome = re.sub(r"\b[0-9a-f]*[0-9][0-9a-f]*\b|\"\w+\"", "#", str(ended))[:60]
        except OSError as error:
            outcome = type(error).__name__
        key = f"{name}, {outcome}"
        self.counts[key] = self.counts.get(key, 0) + 1
        while len(self.held) > self.limit:
            self.drop(self.held.pop(0))

    def drop(self, connection):
        try:
            connection.abandon() if self.random.random() < 0.5 else connection.close()
        except OSError:
            pass

    def connect(self, hold=True, address=None):
        connection = protocol.Connection(address or self.random.choice(self.addresses), timeout=2.0)
        if hold:
            self.held.append(connection)
        return connection

    def greeted(self, purpose, ranks=1, rank=0, session=None, hold=True, address=None):
        """A connection whose HELLO has been answered; and the reducer's id."""
        connection = self.connect(hold, address)
        return connection, connection.greet(purpose, NEIGHBOUR, self.token, session or self.random.randbytes(16), rank, ranks)

    def opened_store(self):
        connection, _ = self.greeted(protocol.STORE_OF, address=self.addresses[-1])
        connection.send_message(protocol.STORE, connection.mac())
        connection.receive(protocol.STORE_READY)
        return connection


class Attacker(Client):
    """One process that misbehaves. Its methods are the acts."""

    # ---- strangers ----

    def stays_silent(self):
        """Connects and sends nothing."""
        for _ in range(self.random.randrange(1, HELD)):
            self.connect()

    def drips(self):
        for connection in self.held[-HELD:]:
            connection.send(b"S")

    def stops_within_hello(self):
        self.connect().send(protocol.frame(protocol.HELLO, bytes(100))[:self.random.randrange(1, 160)])

    def sends_junk(self):
        self.connect().send(self.random.randbytes(self.random.randrange(1, 4096)))

    def speaks_http(self):
        self.connect().send(b"GET /metrics HTTP/1.1\r\nHost: reducer\r\n\r\n" * 20)

    def announces_much(self):
        kind = self.random.choice((protocol.HELLO, protocol.JOIN, 32, 69, 200))
        self.connect().send(protocol.frame(kind, b"", length=self.random.choice((16384, 1 << 20, 0xFFFFFFFF))))

    def has_no_token(self):
        self.connect().greet(protocol.CONTROL, NEIGHBOUR)

    def has_another_pools_token(self):
        connection = self.connect()
        connection.greet(protocol.STATUS, JOB, protocol.job_token(b"k" * 32, JOB))

    def replays_a_wrong_mac(self):
        connection, _ = self.greeted(protocol.STATUS)
        connection.send_message(protocol.STATUS_QUERY, self.random.randbytes(32))
        connection.receive(protocol.STATUS_REPLY)

    # ---- neighbours: their token is valid ----

    def greets_and_stays(self):
        self.greeted(self.random.randrange(6))

    def opens_idle_sessions(self):
        for _ in range(self.random.randrange(1, HELD // 2)):
            self.held += protocol.open_session(self.random.choice(self.addresses), NEIGHBOUR, self.token)

    def closes_many_at_once(self):
        if len(self.held) < self.limit // 2:
            return self.opens_idle_sessions()
        for connection in self.held[:len(self.held) * 3 // 4]:
            self.drop(connection)
        del self.held[:len(self.held) * 3 // 4]

    def joins_alone(self):
        connection, reducer = self.greeted(protocol.CONTROL, ranks=self.random.choice((2, 64, 2048)))
        connection.join(reducer, timeout_ms=60_000)

    def joins_with_much_memory(self):
        connection, reducer = self.greeted(protocol.CONTROL, ranks=2048)
        connection.join(reducer, window=256 << 20, slot=1 << 20)

    def joins_without_a_vote(self):
        session, address = self.random.randbytes(16), self.random.choice(self.addresses)
        control, reducer = self.greeted(protocol.CONTROL, session=session, address=address)
        control.join(reducer)
        lane, _ = self.greeted(protocol.LANE, session=session, address=address)
        lane.attach(control.handle)

    def votes_no(self):
        """Leaves a verdict at the arbiter, many times."""
        for _ in range(HELD):
            control, reducer = self.greeted(protocol.CONTROL, hold=False)
            control.join(reducer)
            control.send_message(protocol.VOTE, struct.pack("<BHI", 0, 1, 0) + protocol.text("no " * 300))
            control.close()

    def sends_bad_frames_on_a_lane(self):
        control, lane = protocol.open_session(self.random.choice(self.addresses), NEIGHBOUR, self.token)
        self.held += [control, lane]
        lane.send(protocol.frame(32, self.random.randbytes(256), control.handle, length=self.random.choice((256, 4096, 1 << 22))))

    def stops_within_a_heartbeat(self):
        control, lane = protocol.open_session(self.random.choice(self.addresses), NEIGHBOUR, self.token)
        self.held += [control, lane]
        control.send(protocol.frame(protocol.HEARTBEAT, bytes(29), control.handle)[:self.random.randrange(1, 90)])

    def asks_without_reading(self):
        """Queries of the status whose answers it does not read."""
        for _ in range(HELD // 4):
            connection, _ = self.greeted(protocol.STATUS)
            connection.send_message(protocol.STATUS_QUERY, connection.mac())

    def asks_for_a_verdict(self):
        connection, _ = self.greeted(protocol.VERDICT_OF)
        connection.send_message(protocol.VERDICT_QUERY, connection.mac())
        connection.receive(protocol.VERDICT)

    def gathers_alone(self):
        for rank in range(self.random.randrange(1, 8)):
            connection, _ = self.greeted(protocol.GATHER_OF, ranks=64, rank=rank)
            body = struct.pack("<BI", 0, 60_000) + struct.pack("<H", 256) + bytes(256) + connection.mac()
            connection.send_message(protocol.GATHER, body)

    def keeps_store_connections(self):
        for _ in range(self.random.randrange(1, HELD // 2)):
            self.opened_store()

    def announces_a_model(self):
        connection = self.opened_store()
        body = struct.pack("<B", 1) + protocol.text("announced") + struct.pack("<Q", self.random.choice((8 << 20, 32 << 20, 1 << 62)))
        connection.send_message(protocol.MODEL_QUERY, body)

    def sends_nested_json(self):
        connection = self.opened_store()
        spec = b"[" * 100_000
        connection.send_message(protocol.MODEL_QUERY, struct.pack("<B", 1) + protocol.text("nested") + struct.pack("<Q", len(spec)))
        connection.send_message(80, spec[:16384])

    def deletes_the_others_model(self):
        connection = self.opened_store()
        connection.send_message(protocol.MODEL_QUERY, struct.pack("<B", 2) + protocol.text("outer-steps") + struct.pack("<Q", 0))
        connection.receive(protocol.MODEL_QUERY + 1, 80)

    def stops_within_a_store_request(self):
        connection = self.opened_store()
        connection.send(protocol.frame(protocol.PULL, bytes(40))[:self.random.randrange(1, 100)])


STRANGERS = ("stays_silent", "drips", "stops_within_hello", "sends_junk", "speaks_http", "announces_much", "has_no_token", "has_another_pools_token",
             "replays_a_wrong_mac")
ACTS = {name: act for name, act in vars(Attacker).items() if callable(act)}


def attack(addresses, seed, held, token, acts, results):
    """The body of an attacker's process: acts until SIGTERM, then gives its counts."""
    limit = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    resource.setrlimit(resource.RLIMIT_NOFILE, (limit, limit))
    ended = []
    signal.signal(signal.SIGTERM, lambda *_: ended.append(True))
    attacker = Attacker(addresses, seed, held, token)
    while not ended:
        attacker.act(attacker.random.choice(acts))
    for connection in attacker.held:
        attacker.drop(connection)
    results.put(attacker.counts)
