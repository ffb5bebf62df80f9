#!/usr/bin/env python3
"""Writes v1_exchange.hex, a recorded exchange of protocol version 1: two ranks, one reducer with a key.

The script follows docs/reference/protocol.md only. It has its own CRC-32C, and uses the hashes and the arithmetic of
Python, so it is independent of the C++ code. Run it manually when the protocol changes:
    python3 write_v1_exchange.py > v1_exchange.hex
"""

import hashlib
import hmac
import math
import struct

# ---- constants of the protocol ----

HELLO, WELCOME, JOIN, JOINED, ATTACH, ATTACHED, REFUSED = 1, 2, 3, 4, 5, 6, 7
VOTE, VERDICT, COMMIT, HEARTBEAT, LEAVE, LEAVE_ACK, ABORT = 16, 17, 18, 19, 20, 21, 22
STATUS_QUERY, STATUS_REPLY, VERDICT_QUERY = 23, 24, 25
CONTRIBUTION, RESULT = 32, 33
NAMES = {value: name for name, value in list(globals().items()) if name.isupper() and isinstance(value, int)}
TYPES = {"i32": 2, "f32": 7, "bf16": 9}
ACCUMULATORS = {"i32": 2, "f32": 7, "bf16": 7}
OPS = {"sum": 0, "prod": 1, "avg": 4}
OK, RANK_TAKEN, PEER_LOST = 0, 49, 64
NO_RANK = 0xFFFFFFFF


def crc32c(data):
    crc = 0xFFFFFFFF
    for byte in data:
        crc ^= byte
        for _ in range(8):
            crc = (crc >> 1) ^ (0x82F63B78 if crc & 1 else 0)
    return crc ^ 0xFFFFFFFF


assert crc32c(b"123456789") == 0xE3069283


class Fields:
    """Bytes, with a remark for each run of bytes."""

    def __init__(self):
        self.runs = []

    def put(self, data, remark):
        self.runs.append((bytes(data), remark))
        return self

    def u8(self, value, remark):
        return self.put(struct.pack("<B", value), remark)

    def u16(self, value, remark):
        return self.put(struct.pack("<H", value), remark)

    def u32(self, value, remark):
        return self.put(struct.pack("<I", value), remark)

    def u64(self, value, remark):
        return self.put(struct.pack("<Q", value), remark)

    def text(self, value, remark):
        raw = value.encode()
        self.u16(len(raw), f"{remark}: {len(raw)} bytes")
        return self.put(raw, f'"{value}"') if raw else self

    def items(self, values, code, remark):
        self.u16(len(values), f"{remark}: {len(values)} items")
        for value in values:
            self.put(struct.pack("<" + code, value), str(value) if code == "I" else hex(value))
        return self

    def bytes(self):
        return b"".join(data for data, _ in self.runs)


def header(kind_of_frame, payload, extensions=b"", session=0, **data):
    """The 64-byte header of section 2. `data` has the fields of data frames."""
    f = Fields()
    f.put(b"SLIC", "magic").u8(1, "version").u8(kind_of_frame, f"type {NAMES[kind_of_frame]}")
    f.u16(1, "flags").u8(len(extensions) // 8, "ext_len8").u8(0, "scale_exponent")
    f.u16(0, "view_version").u32(session, "session").u32(data.get("view_hash", 0), "view_hash")
    f.u16(data.get("slot", 0), "slot").u8(data.get("kind", 0), "kind").u8(0, "encoding")
    f.u64(data.get("sequence", 0), "sequence").u64(data.get("chunk", 0), "chunk").u32(data.get("op_id", 0), "op_id")
    f.u8(data.get("wire_dtype", 0), "wire_dtype").u8(data.get("acc_dtype", 0), "acc_dtype")
    f.u8(data.get("wire_dtype", 0), "result_dtype").u8(data.get("op", 0), "op")
    f.u32(len(payload), "length").u32(data.get("fingerprint", 0), "fingerprint")
    f.u32(crc32c(payload), "payload_crc")
    assert len(f.bytes()) == 60
    return f.u32(crc32c(f.bytes() + extensions), "header_crc")


def extension(number, name, f):
    body = f.bytes()
    assert len(body) == 8
    whole = Fields().u16(number, f"extension {name}").u16(8, "body 8 bytes").u32(0, "zero")
    whole.runs += f.runs
    return whole


def emit(connection, arrow, head, *parts):
    """Prints runs on lines of at most 16 bytes, so a header has four lines. A longer run starts on a new line."""
    print(f"\n@ {connection} {arrow} {head}")
    for part in parts:
        line, remarks = b"", []
        for data, remark in part.runs + [(bytes(16), "")]:
            if len(line) + len(data) > 16:
                for at in range(0, len(line), 16):
                    print(f"{line[at : at + 16].hex(' '):47} # {', '.join(remarks)}")
                    remarks = ["..."]
                line, remarks = b"", []
            line += data
            remarks.append(remark)


def remark(text):
    print("\n" + "\n".join("# " + line for line in text.splitlines()))


def control(connection, arrow, number, body, session=0):
    emit(connection, arrow, NAMES[number], header(number, body.bytes(), session=session), body)
    return body.bytes()


# ---- participants ----

KEY = bytes(range(32))
JOB = "train-7"
SESSION = bytes(range(0x10, 0x20))
REDUCER = 0xA1A2A3A4A5A6A7A8
RANKS, LANES, WINDOW, SLOT, HANDLE = 2, 1, 32 * 1024, 16 * 1024, 7
W = max(2, WINDOW // SLOT // LANES)
INCARNATION = 0x0102030405060708

VIEW = struct.pack("<HHII", 0, 1, WINDOW, SLOT) + struct.pack("<QHHB", REDUCER, LANES, 1, 1)
VIEW_HASH = int.from_bytes(hashlib.sha256(VIEW).digest()[:8], "little")


def hmac_sha256(key, data):
    return hmac.new(key, data, hashlib.sha256).digest()


TOKEN = hmac_sha256(KEY, b"sluice job token\0" + JOB.encode() + b"\0")


def run_from(first):
    return bytes(range(first, first + 32))


def handshake(connection, number, purpose, rank, lane=0, incarnation=0):
    """HELLO and WELCOME; returns the client's proof as a function of the view hash."""
    hello = Fields().u8(1, "min_version").u8(1, "max_version").u8(purpose, "purpose").u8(0, "0")
    hello.u32(rank, "rank").u32(RANKS, "ranks").u32(lane, "lane").put(SESSION, "session")
    hello.u64(incarnation, "incarnation").u64(0, "features").put(run_from(0x40 + number), "nonce")
    hello.text(JOB, "job").text("", "tenant")
    sent = control(connection, ">", HELLO, hello)

    def welcome(mac):
        f = Fields().u8(1, "version").u8(1, "proof").u16(LANES, "lanes").u32(1 << 20, "max_slot_bytes")
        f.u64(REDUCER, "reducer").u64(0, "features").put(run_from(0x90 + number), "nonce").put(mac, "mac")
        return f.text("sluice 0.1.0", "software")

    plain = welcome(bytes(32)).bytes()
    control(connection, "<", WELCOME, welcome(hmac_sha256(TOKEN, b"sluice server\0" + sent + plain)))
    return lambda view_hash: hmac_sha256(TOKEN, b"sluice client\0" + sent + plain + struct.pack("<Q", view_hash))


def join_body(proof):
    f = Fields().u64(VIEW_HASH, "view_hash").u32(WINDOW, "window_bytes").u32(SLOT, "slot_bytes").u16(LANES, "lanes")
    f.u16(0, "reducer_index").u32(30000, "join_timeout_ms").items([REDUCER], "Q", "reducers")
    return f.put(proof(VIEW_HASH), "mac")


def reason(f, code, rank, text):
    return f.u16(code, "code").u32(rank, "rank").text(text, "text")


def heartbeat(count, waited_ms, missing, finished=0, answer=0):
    f = Fields().u64(count, "count").u32(waited_ms, "waited_ms").u32(len(missing), "missing_ranks")
    return f.items(missing, "I", "missing").u64(finished, "finished").u8(answer, "answer")


# ---- arithmetic of section 7 ----


def as_f32(value):
    """Rounds to f32. A sum of two f32 values in f64 is exact enough that this rounds only once."""
    if math.isnan(value):
        return value
    try:
        return struct.unpack("<f", struct.pack("<f", value))[0]
    except OverflowError:
        return math.copysign(math.inf, value)


def f32_bytes(values):
    return b"".join(struct.pack("<I", 0x7FC00000) if math.isnan(v) else struct.pack("<f", v) for v in values)


def f32_values(data):
    return [v for (v,) in struct.iter_unpack("<f", data)]


def bf16_values(data):
    return [struct.unpack("<f", struct.pack("<I", bits << 16))[0] for (bits,) in struct.iter_unpack("<H", data)]


def bf16_bytes(values):
    out = b""
    for value in values:
        bits = struct.unpack("<I", struct.pack("<f", value))[0]
        out += struct.pack("<H", (bits + 0x7FFF + (bits >> 16 & 1)) >> 16)  # rounds to nearest even; the inputs have no NaN
    return out


class Operation:
    """One operation of one chunk: contributions, and the result as section 7 defines it."""

    def __init__(self, sequence, dtype, op, payloads, result):
        self.sequence, self.dtype, self.op, self.payloads, self.result = sequence, dtype, op, payloads, result
        size = {"f32": 4, "bf16": 2, "i32": 4}[dtype]
        self.count = len(result) // size
        kind = 1
        self.data = {
            "view_hash": VIEW_HASH & 0xFFFFFFFF, "slot": sequence % W, "kind": kind, "sequence": sequence,
            "chunk": sequence, "op_id": sequence, "wire_dtype": TYPES[dtype], "acc_dtype": ACCUMULATORS[dtype],
            "op": OPS[op], "fingerprint": crc32c(struct.pack("<QBBB5x", self.count, TYPES[dtype], OPS[op], kind)),
        }  # fmt: skip

    def contribute(self, rank):
        ext = extension(5, "OP_INFO", Fields().u64(self.count, "count"))
        payload = self.payloads[rank]
        emit(f"lane{rank}", ">", f"CONTRIBUTION {self.sequence} of rank {rank}",
             header(CONTRIBUTION, payload, ext.bytes(), HANDLE, **self.data), ext,
             Fields().put(payload, f"payload {self.dtype}"))  # fmt: skip

    def answer(self, last_rank, lag_us):
        ext = extension(1, "RESULT", Fields().u32(last_rank, "last_rank").u32(lag_us, "lag_us"))
        for rank in range(RANKS):
            emit(f"lane{rank}", "<", f"RESULT {self.sequence} to rank {rank}",
                 header(RESULT, self.result, ext.bytes(), HANDLE, **self.data), ext,
                 Fields().put(self.result, f"payload {self.dtype}"))  # fmt: skip


def f32_sum():
    a = f32_bytes([1.5, 1e30, 0.0, math.inf, 2.0**-149, -0.0, 3.4e38, 0.1, -0.0])
    a = a[:8] + struct.pack("<I", 0xFFC12345) + a[12:]  # a NaN with a sign and a payload
    b = f32_bytes([2.25, -1e30, 1.0, -math.inf, 2.0**-148, 0.0, 3.4e38, 0.2, -0.0])
    result = [math.nan if math.isnan(x + y) else as_f32(x + y) for x, y in zip(f32_values(a), f32_values(b))]
    return Operation(0, "f32", "sum", [a, b], f32_bytes(result))


def bf16_avg():
    a, b = struct.pack("<HHHH", 0x3F80, 0x3F81, 0x0001, 0xC2F7), struct.pack("<HHHH", 0x4000, 0x3F82, 0x0002, 0x42F6)
    result = [as_f32(as_f32(x + y) / 2) for x, y in zip(bf16_values(a), bf16_values(b))]
    return Operation(1, "bf16", "avg", [a, b], bf16_bytes(result))


def i32_prod():
    a, b = struct.pack("<iii", 3, -70000, 2**31 - 1), struct.pack("<iii", -5, 70001, 2)
    result = [x * y & 0xFFFFFFFF for (x,), (y,) in zip(struct.iter_unpack("<i", a), struct.iter_unpack("<i", b))]
    return Operation(2, "i32", "prod", [a, b], struct.pack("<III", *result))


# ---- the exchange ----

print("""# Recorded exchange of protocol version 1, written by write_v1_exchange.py: two ranks, one reducer, one lane, two slots of 16 KiB.
# "@ connection > NAME" begins a frame from a client to the reducer, "<" one back. Frames stand in the order of time.
# Key: bytes 00..1f. Job "train-7".""")

remark("Both ranks join.")
for rank in range(RANKS):
    proof = handshake(f"control{rank}", rank, 0, rank)
    control(f"control{rank}", ">", JOIN, join_body(proof))
    joined = Fields().u32(HANDLE, "handle").u32(1000, "heartbeat_ms").u32(15000, "peer_timeout_ms")
    control(f"control{rank}", "<", JOINED, joined, HANDLE)

remark("A stranger comes as rank 1, which is there.")
proof = handshake("stranger", 2, 0, 1)
control("stranger", ">", JOIN, join_body(proof))
control("stranger", "<", REFUSED, reason(Fields(), RANK_TAKEN, 1, "rank 1 is taken by 10.0.0.2:40001"))

remark("Each opens its lane connection.")
for rank in range(RANKS):
    proof = handshake(f"lane{rank}", 3 + rank, 1, rank)
    attach = Fields().u32(HANDLE, "handle").u64(VIEW_HASH, "view_hash").put(proof(VIEW_HASH), "mac")
    control(f"lane{rank}", ">", ATTACH, attach)
    control(f"lane{rank}", "<", ATTACHED, Fields().u32(W, "slots"), HANDLE)

remark("Both vote yes; the arbiter commits; COMMIT goes over every connection.")
for rank in range(RANKS):
    control(f"control{rank}", ">", VOTE, reason(Fields().u8(1, "yes"), OK, NO_RANK, ""), HANDLE)
verdict = reason(Fields().u8(1, "commit").u64(INCARNATION, "incarnation"), OK, NO_RANK, "")
for rank in range(RANKS):
    control(f"control{rank}", "<", VERDICT, verdict, HANDLE)
for rank in range(RANKS):
    for connection in (f"control{rank}", f"lane{rank}"):
        control(connection, ">", COMMIT, Fields().u64(INCARNATION, "incarnation"), HANDLE)

remark("Operation 0: f32 sum of 9 elements; rank 1 comes 1500 us after rank 0.")
op = f32_sum()
op.contribute(0)
op.contribute(1)
op.answer(last_rank=1, lag_us=1500)

remark("Operation 1: bf16 avg of 4 elements, both at once, in slot 1.")
op = bf16_avg()
op.contribute(0)
op.contribute(1)
op.answer(last_rank=1, lag_us=0)

remark("Operation 2: i32 prod of 3 elements, in slot 0 again. Rank 0 comes 5000 s after rank 1: the lag is saturated. Meanwhile heartbeats.")
op = i32_prod()
op.contribute(1)
control("control0", ">", HEARTBEAT, heartbeat(1, 0, [], finished=2), HANDLE)
control("control1", "<", HEARTBEAT, heartbeat(1, 2000, [0]), HANDLE)
op.contribute(0)
op.answer(last_rank=0, lag_us=0xFFFFFFFF)

remark("Somebody asks how the reducer is, and how the vote ended.")
proof = handshake("status", 5, 2, 0)
control("status", ">", STATUS_QUERY, Fields().put(proof(0), "mac"))
control("status", "<", STATUS_REPLY, Fields().text('{"sessions":1}', "json"))
proof = handshake("verdict", 6, 3, 0)
control("verdict", ">", VERDICT_QUERY, Fields().put(proof(0), "mac"))
control("verdict", "<", VERDICT, verdict)

remark("Both leave.")
for rank in range(RANKS):
    control(f"control{rank}", ">", LEAVE, Fields().u64(3, "finished"), HANDLE)
for rank in range(RANKS):
    control(f"control{rank}", "<", LEAVE_ACK, Fields(), HANDLE)

remark("Had rank 1 been lost instead, rank 0 would have been told so on its connections.")
for connection in ("control0", "lane0"):
    control(connection, "<", ABORT, reason(Fields(), PEER_LOST, 1, "rank 1 (10.0.0.2:40001) is lost: reset"), HANDLE)
