#!/usr/bin/env python3
"""Writes the initial inputs of each fuzz target to corpus/<target>/seed_*. They are valid inputs, which a fuzzer mutates.

    python3 tests/fuzz/write_seeds.py
"""

import json
import math
import random
import struct
from pathlib import Path

HERE = Path(__file__).resolve().parent
VECTORS = HERE.parent / "conformance" / "vectors"
MESSAGES = (  # in the order of kBodies in handshake_fuzz.cc
    "HELLO WELCOME JOIN JOINED ATTACH ATTACHED REFUSED PAIR PAIRED VOTE VERDICT COMMIT HEARTBEAT LEAVE LEAVE_ACK ABORT "
    "STATUS_QUERY STATUS_REPLY VERDICT_QUERY RESUME RESUME_ACK SUSPECT VIEW_QUERY VIEW_ANSWER VIEW_COMMIT DRAIN_NOTICE "
    "VIEW_KNOWN STREAM STREAM_ANSWER STREAM_OFFER RATE_CHANGES GATHER GATHERED"
).split()


def recorded_frames():
    """Returns (name, bytes) of every frame of the recorded exchange."""
    frames = []
    for line in (VECTORS / "v1_exchange.hex").read_text().splitlines():
        if line.startswith("@"):
            frames.append((line.split()[3], b""))
        elif line.split("#")[0].strip():
            frames[-1] = (frames[-1][0], frames[-1][1] + bytes.fromhex(line.split("#")[0]))
    return frames


def recorded_frame(name):
    lines = (VECTORS / name).read_text().splitlines()
    return bytes.fromhex(" ".join(line.split("#")[0] for line in lines))


def caller(op_id, root, dtype, kind, op):
    """CALLER: what the ranks of a host call."""
    return bytes.fromhex("0900080000000000") + op_id.to_bytes(4, "little") + root.to_bytes(2, "little") + bytes([dtype, kind + 16 * op])


def op_info(count):
    return bytes.fromhex("0500080000000000") + count.to_bytes(8, "little")


def write(target, seeds):
    folder = HERE / "corpus" / target
    folder.mkdir(parents=True, exist_ok=True)
    for name, data in seeds.items():
        (folder / f"seed_{name}").write_bytes(bytes(data))


def frame_seeds(frames):
    seeds = {f"{name.lower()}": b"\0" + data for name, data in frames}
    seeds["sparse"] = b"\0" + recorded_frame("sparse.hex")[:96]
    seeds["sparse_reserved"] = b"\2" + recorded_frame("sparse.hex")[:92] + b"\1\0\0\0"
    seeds["blocks"] = b"\0" + recorded_frame("blocks.hex")[:80]
    seeds["repaired"] = b"\3" + bytes([0, 0, 0, 0, 1, 33, 1, 0, 2]) + bytes(55) + bytes.fromhex("0100080000000000") + bytes(8)
    seeds["caller"] = seeds["repaired"][:65] + caller(7, 2, 6, 5, 0)
    seeds["mandatory_caller"] = seeds["repaired"][:65] + b"\x09\x80" + caller(7, 2, 6, 5, 0)[2:]
    seeds["unknown_caller"] = seeds["repaired"][:65] + caller(7, 2, 99, 5, 0)
    seeds["mandatory_finding"] = seeds["repaired"][:65] + bytes.fromhex("0880080000000000") + bytes(8)
    return seeds


def handshake_seeds(frames):
    seeds = {}
    bodies = {name: data[64:] for name, data in frames if name in MESSAGES}
    for number, name in enumerate(MESSAGES):
        seeds[name.lower()] = bytes([number + 3]) + bodies.get(name, bytes(20))
    hello, welcome = bodies["HELLO"], bodies["WELCOME"]
    length = lambda body: len(body).to_bytes(4, "little")
    seeds["proofs"] = b"\1" + length(hello) + hello + length(welcome) + welcome + bytes([32]) + bytes(range(32)) + bytes(8)
    with_key_id = hello + bytes(range(8))
    seeds["hello_key_id"] = bytes([3]) + with_key_id
    seeds["proofs_key_id"] = b"\1" + length(with_key_id) + with_key_id + length(welcome) + welcome + bytes([32]) + bytes(range(32)) + bytes(8)
    seeds["versions"] = bytes([0, 1, 3])
    seeds["view"] = bytes([2, 0, 0, 2]) + (bytes(range(8)) + bytes([3, 0, 1])) * 3 + bytes(24)
    return seeds


def stream_seeds():
    whole, cut = [0, 0, 0], [0, 4, 9, 1, 3, 30, 2]
    control = [8, 0, 20] + list(range(20))
    data = [9, 0, 63, 0] + list(range(64))
    extended = [11, 0, 15, 0] + list(range(16))
    return {
        "frames": whole + control + data + extended,
        "cut": cut + control + data + extended + control,
        "altered": cut + data + [5, 0, 15, 0] + list(range(16)) + [0, 10] + bytes_of(8),
        "raw": whole + [0, 0, 0, 40] + list(range(40)),
        "stopped": [1, 0, 0] + control + data,
        "empty": whole + [8, 0, 0] * 4 + control + [8, 0, 0] * 2,
        "extensions_too_long": whole + [4, 0, 5] + bytes_of(5) + [0, 19, 9] + [0] * 72,
        "empty_cut": [0, 1, 11, 9] + [8, 0, 0, 8, 0, 1, 7] * 4,
    }


def payload_seeds():
    expand, sparse, decode, encode = range(4)
    u8, f32, mxfp8, int8_block = 1, 7, 12, 13
    u32 = lambda value: list(value.to_bytes(4, "little"))
    small, no_zeros_before, zeros_before = [1], [0], [1]
    recorded = list(recorded_frame("sparse.hex")[96:])  # 259 f32
    block = list(recorded_frame("blocks.hex")[-264:])
    scales = [0, 0, 0x80, 0x3F, 0, 0, 0xC0, 0x7F]  # 1 and NaN
    floats = struct.pack("<12f", 0, -0.0, 1, -3.7, 448, 449, 1e-45, -1e-38, 3.4e38, 1e30, 127.5, 0.1)
    special = struct.pack("<4f", 1, float("inf"), float("nan"), -2)
    return {
        "expand": [expand, f32] + small + u32(259 * 4) + no_zeros_before + recorded,
        "expand_plain_is_shorter": [expand, f32] + small + u32(256) + no_zeros_before + recorded,
        "expand_cut": [expand, f32] + small + u32(259 * 4) + no_zeros_before + recorded[:-1],
        "expand_bits_beyond": [expand, f32] + small + u32(259 * 4) + no_zeros_before + recorded[:-1] + [recorded[-1] | 32],
        "expand_zero_block": [expand, u8] + small + u32(200) + zeros_before + [64, 0, 2],
        "expand_blocks": [expand, int8_block] + small + u32(264 * 9) + no_zeros_before + block + [0, 1],
        "expand_nothing": [expand, u8] + small + u32(0) + no_zeros_before,
        "expand_large": [expand, u8, 0] + u32(256 << 10) + zeros_before + [64, 2],
        "sparse": [sparse, f32] + small + u32(4000) + [0, 5, 9, 0, 0, 0, 0, 1, 255, 0],
        "sparse_byte": [sparse, u8] + small + u32(1),
        "sparse_blocks": [sparse, mxfp8] + small + u32(264 * 10) + [0, 128, 8, 1],
        "sparse_large": [sparse, u8, 0] + u32(256 << 10) + [1, 1, 1],
        "decode_mxfp8": [decode, 0, 0] + block,
        "decode_mxfp8_part": [decode, 0, 200] + block * 2,
        "decode_int8": [decode, 1, 3] + scales + [i for i in range(256) if i != 128] + [129],
        "decode_int8_bad_code": [decode, 1, 3] + scales + list(range(256)),
        "decode_int8_bad_scale": [decode, 1, 0, 1] + scales[1:] + [7] * 256,
        "encode_mxfp8": [encode, 0, 0] + list(floats),
        "encode_int8": [encode, 1, 0] + list(floats),
        "encode_special_mxfp8": [encode, 0, 2, 44, 1] + list(special),
        "encode_special_int8": [encode, 1, 2, 44, 1] + list(special),
        "encode_random_mxfp8": [encode, 0, 1] + bytes_of(12) + list(floats),
        "encode_random_int8": [encode, 1, 3] + bytes_of(12) + [0, 3] + list(floats),
        "encode_largest": [encode, 0, 0] + [255, 255, 127, 127],
        "encode_subnormals_int8": [encode, 1, 2, 200, 0] + [1, 0, 0, 0, 255, 255, 127, 128, 77, 1, 1, 0],
    }  # fmt: skip


def bytes_of(n):
    return [0x11 * (i % 15 + 1) for i in range(n)]


def lane_seeds():
    def act(what, rank=0):
        return what + 16 * rank

    attach, commit, send, everyone, altered, raw, control, part, time, drain, close, left, end, odd, two = (
        0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 14, 15)  # fmt: skip
    two_ranks, three, one, nine = 0, 1, 6, 7
    no_crc, slow, small_folds, not_joined, three_slots = 8, 16, 32, 64, 128
    rounds = [act(everyone)] * 4
    return {
        "rounds": [two_ranks, 1] + rounds,
        "rounds_of_nine": [nine | small_folds, 9] + rounds,
        "rounds_of_one": [one | no_crc, 3] + rounds,
        "late": [three | not_joined, 5, act(attach, 1), act(commit, 1), act(send, 1), act(time), 5, act(attach, 0), act(commit, 0),
                 act(send, 0), act(attach, 2), act(commit, 2), act(send, 2), act(everyone)],
        "slow": [three | slow | three_slots, 7] + rounds + [act(send), act(send, 1), act(drain, 2)] + rounds,
        "window": [two_ranks, 2, act(two), act(send), act(send, 1)],
        "parts": [two_ranks, 2, act(part), 90, 0, act(part), 20, 0, act(send, 1), act(raw), 0, act(everyone)],
        "timeout": [two_ranks, 2, act(part), 90, 0, act(time), 60, act(send, 1)],
        "mismatch": [two_ranks, 2, act(send), act(altered, 1), 0, 16, 3, act(end), 1],
        "mismatch_of_length": [two_ranks, 2, act(send), act(altered, 1), 0, 18, 8, 0] + bytes_of(8) + [act(end), 1],
        # Two hosts: two ranks on their rails, whose callers differ in the root; then one with a caller and one without.
        "mismatch_of_callers": [two_ranks, 6, act(altered), 1, 19, 4, *op_info(9), *caller(0, 1, 5, 5, 0), 17, 9, 0, 0, 0,
                                act(altered, 1), 1, 19, 4, *op_info(9), *caller(0, 2, 5, 5, 0), 17, 8, 0, 0, 0, act(end), 1],
        "one_caller": [two_ranks, 6, act(altered), 0, 19, 4, *op_info(9), *caller(0, 1, 5, 5, 0), act(altered, 1), 0, 16, 3, act(end), 1],
        "altered": [three, 4, act(altered), 2, 5, 5, 0, 0, 0, act(altered, 1), 0, 28, 1, act(everyone)],
        "raw": [two_ranks, 6, act(raw), 70] + [83, 76, 73, 67] + [1] * 66 + [act(everyone)],
        "control": [two_ranks, 6, act(control), 22, 0, act(control, 1), 19, 22] + [0] * 22 + [act(everyone)],
        "leave": [three, 8, act(everyone), act(left), act(left, 1), act(send, 2), act(end), 0],
        "leave_slowly": [one | slow | small_folds | three_slots, 81] + [act(two)] * 7 + [act(left)],
        "leave_in_part": [two_ranks, 8, act(part), 9, 0, act(left), act(send, 0), act(send, 1)],
        "half_close": [two_ranks, 8, act(everyone), act(close), 0, act(send, 1), act(end), 1, act(end)],
        "vanish": [three | slow, 8] + rounds + [act(close, 1), 1, act(everyone), act(end), 1, act(end)],
        "end_unread": [three | slow | three_slots, 7] + rounds + [act(close, 1), 2, act(send), act(time), 3, act(drain, 1)],
        # Both ranks without the same blocks; then one with a plain payload; then wrong bitmaps and lengths.
        "sparse": [two_ranks, 1] + rounds + [act(altered), 0, 29, 85, act(altered, 1), 0, 29, 85, act(altered), 0, 29, 15, act(send, 1)] + rounds,
        "sparse_bitmap": [three, 1, act(altered), 1, 29, 255, 30, 0, act(altered, 1), 1, 29, 1, 30, 7, act(altered, 2), 1, 29, 6, 36, 120],
        "sparse_expanded": [three, 2, act(altered), 1, 29, 255, 31, act(altered, 1), 1, 29, 255, 33, 129, act(altered, 2), 1, 29, 3, 32, 0, 0, 0, 2],
        "sparse_or_not": [three, 3, act(everyone), act(altered), 0, 34, 1, act(altered, 1), 1, 29, 255, 34, 0, act(everyone), act(altered, 2), 0, 37],
        "sparse_of_nine": [nine | small_folds, 4] + [act(everyone), act(odd, 8), 32] * 8,
        "owners": [three | three_slots, 5] + rounds * 3 + [act(altered), 0, 38, 4, act(altered, 1), 0, 38, 4],
        # The first chunk of these scripts is of int8-block and of f32, and has no zeros.
        "bad_code": [two_ranks, 43, act(send, 1), act(altered), 0, 35, 8, 0, 128],
        "bad_scale": [two_ranks, 43, act(send, 1), act(altered), 0, 35, 0, 0, 1],
        "sparse_and_longer": [two_ranks, 20, act(send, 1), act(altered), 0, 29, 0],
        "losses": [three, 7, act(odd), 64, act(odd, 1), 96, act(send, 2)] + rounds,
        "odd": [two_ranks, 8, act(odd), 15, act(odd, 1), 2, act(everyone)],
    }


def lane_recovery_seeds():
    def act(what, rank=0):
        return what + 16 * rank

    resume, resume_newest, send, everyone, part, view, follow, all_follow, cut, close, drain, leave, garbage, altered, time, all_resume = (
        range(16))  # fmt: skip
    two_ranks, three, one, nine = 0, 1, 6, 7
    no_crc, slow, small_folds, three_slots = 8, 16, 32, 128
    rounds = [act(everyone)] * 4
    drained = [act(drain), act(drain, 1)]
    return {
        "rounds": [two_ranks, 1] + rounds,
        "resume": [three, 2] + rounds + [act(cut, 1), act(send), act(resume, 1)] + rounds + [act(resume, 2)] + rounds,
        "lost_results": [three | slow | three_slots, 3] + [act(everyone)] * 3 + [act(resume, 1), act(drain, 1)] + rounds,
        "part": [two_ranks, 4, act(part), 90, 0, act(cut), act(send, 1), act(resume), act(everyone), act(part, 1), 20, 0, act(close, 1),
                 act(resume, 1)] + rounds,
        "view": [nine | small_folds, 5] + rounds + [act(send), act(send, 1), act(view), act(all_follow)] + rounds,
        "behind": [three, 6, act(everyone), act(send), act(view), act(follow), act(send), act(send, 1), act(send, 1), act(send, 2),
                   act(all_follow)] + rounds,
        "kept": [nine, 7] + [act(send, r) for r in range(9)] + [act(cut, 3), act(send, 3), act(everyone), act(view), act(all_resume)] + rounds,
        "views": [three | no_crc, 8, act(everyone), act(view), act(follow), act(view), act(follow, 1), act(send, 1), act(view),
                  act(resume_newest, 2)] + rounds,
        # Folds of the new view wait for results of the old view that rank 1 does not read.
        "held_folds": [two_ranks | slow, 21, act(everyone)] + drained + [act(everyone)] * 2 + [act(drain), act(view), act(all_follow)]
                      + [act(everyone)] * 2 + drained,
        "leave": [three, 9] + rounds + [act(leave, 1), act(cut, 1), act(view), act(all_follow), act(everyone), act(leave)],
        "leave_again": [two_ranks, 10] + rounds + [act(leave), act(view), act(all_follow)] + rounds + [act(leave)],
        "garbage": [two_ranks, 11] + [act(garbage, 1), 3, 1, 2, 3, act(resume, 1)] * 14 + rounds,
        "altered": [two_ranks, 12, act(everyone), act(altered), 1, 1, 0, 20, act(everyone), act(altered, 1), 2, 0, 1, 5, 9] + rounds,
        "time": [two_ranks, 13, act(part), 9, 0, act(time), 15, act(resume)] + rounds,
        "sparse": [three, 16, act(everyone), act(altered), 0, 29, 85, act(altered, 1), 1, 29, 255, 30, 3, act(altered, 2), 1, 29, 7, 31, act(everyone)] + rounds,
        "sparse_results": [two_ranks | slow | three_slots, 17] + rounds + [act(cut, 1), act(resume, 1)] + rounds + [act(view), act(all_follow)] + rounds * 2,
        "one": [one | small_folds, 14] + rounds + [act(view), act(all_follow)] + rounds,
    }  # fmt: skip


def discovery_seeds():
    hostlist, cluster_spec, tf_config, sagemaker, pods, hosts, order = range(7)
    spec = json.dumps({"cluster": {"workerpool0": ["w0:2222"], "workerpool1": ["w1:2222"], "workerpool2": ["r0:2222", "r1:2222"], "workerpool3": {}},
                       "environment": "cloud", "task": {"type": "workerpool2", "index": "1", "trial": "3"}, "job": {"a": [1, 2.5, None, True]}})
    roles = json.dumps({"cluster": {"chief": ["c:1"], "worker": ["w:1"], "ps": ["p:1"]}, "task": {"type": "ps", "index": 0}})
    resources = json.dumps({"current_host": "algo-1", "current_group_name": "gpu", "hosts": ["algo-1", "algo-2"],
                            "instance_groups": [{"instance_group_name": "gpu", "hosts": ["algo-1"]}, {"instance_group_name": "reducer", "hosts": ["algo-2"]}]})
    return {name: bytes([what]) + (data if isinstance(data, bytes) else data.encode()) for name, what, data in (
        ("hostlist", hostlist, "a[1-3,07-09],b,c[0-1]n[2-3]"),
        ("hosts", hosts, "10.0.0.1\n10.0.0.2\n10.0.0.2\n10.0.0.3\nfd00::4\nn5\n"),
        ("hostlist_too_many", hostlist, "a[1-999999999]"),
        ("hostlist_product", hostlist, "a[1-300][1-300][1-300],b"),
        ("cluster_spec", cluster_spec, spec),
        ("cluster_spec_deep", cluster_spec, '{"job":' + "[" * 80),
        ("cluster_spec_cut", cluster_spec, spec[:70]),
        ("cluster_spec_escapes", cluster_spec, '{"cluster":{"workerpool2":["\\u0000\\ud800x:1"]}}'),
        ("tf_config", tf_config, roles),
        ("sagemaker", sagemaker, resources),
        ("sagemaker_odd_host", sagemaker, '{"current_host":"a\\nb","instance_groups":[{"instance_group_name":"reducer","hosts":["r"]}]}'),
        ("pods", pods, "reducer-%d.reducer:7471"),
        ("pods_with_comma", pods, "worue,16%d."),
        ("order", order, "r-10r-9xr-010"),
    )}


def block_seeds():
    mxfp8, int8_block = 0, 1
    total, average = 0, 1
    whole, partial, finish = 0, 1, 2

    def script(kind, op, stage, ranks, divisor=1):
        return bytes([kind, op, stage, 0, ranks - 1]) + divisor.to_bytes(4, "little")

    codes = bytes(range(256))
    moderate = bytes(16 * (i % 6) + 0x12 + i % 8 + 128 * (i % 3 % 2) for i in range(256))  # neither NaN nor subnormal
    blocks = bytes([127, 120, 0, 134, 200, 246, 119, 1]) + moderate
    scales = struct.pack("<2f", 1.5, 2**-20)
    values = struct.pack("<256f", *((i - 99) * 1.01**i for i in range(256)))
    return {
        "mxfp8": script(mxfp8, total, whole, 3) + blocks * 3,
        "mxfp8_special": script(mxfp8, average, whole, 9, 9) + blocks + bytes(range(248, 256)) + codes + blocks * 7,
        "mxfp8_partial": script(mxfp8, total, partial, 2) + bytes(8) + codes + blocks,
        "mxfp8_finish": script(mxfp8, average, finish, 2, 16) + values + struct.pack("<f", math.inf) * 40 + struct.pack("<f", math.nan) * 216,
        "int8_block": script(int8_block, total, whole, 3) + (scales + codes) * 3,
        "int8_block_special": script(int8_block, average, whole, 3, 3) + scales + codes + struct.pack("<2f", 3e38, math.nan) + codes,
        "int8_block_partial": script(int8_block, total, partial, 2) + struct.pack("<2f", 3e38, 0) + codes + scales + codes,
        "int8_block_finish": script(int8_block, average, finish, 2, 16) + values + values[::-1],
    }


def scripts(numbers):
    """Any bytes are a script. 300 bytes are some operations of some ranks, or some packets."""
    return {f"script_{number}": random.Random(number).randbytes(300) for number in numbers}


def main():
    frames = recorded_frames()
    write("frame_fuzz", frame_seeds(frames))
    write("handshake_fuzz", handshake_seeds(frames))
    write("stream_fuzz", stream_seeds())
    write("payload_fuzz", payload_seeds())
    write("lane_fuzz", lane_seeds())
    write("lane_recovery_fuzz", lane_recovery_seeds())
    write("discovery_fuzz", discovery_seeds())
    write("block_fuzz", block_seeds())
    write("local_stage_fuzz", scripts([*range(60), 69, 82, 140, 587, 1199, 1649]))
    write("local_meeting_fuzz", scripts(range(24)))


if __name__ == "__main__":
    main()
