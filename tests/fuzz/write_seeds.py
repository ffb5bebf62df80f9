#!/usr/bin/env python3
"""Writes the initial inputs of each fuzz target to corpus/<target>/seed_*. They are valid inputs, which a fuzzer mutates.

    python3 tests/fuzz/write_seeds.py
"""

import json
import math
import struct
from pathlib import Path

HERE = Path(__file__).resolve().parent
VECTORS = HERE.parent / "conformance" / "vectors"
MESSAGES = (  # in the order of kBodies in handshake_fuzz.cc
    "HELLO WELCOME JOIN JOINED ATTACH ATTACHED REFUSED PAIR PAIRED VOTE VERDICT COMMIT HEARTBEAT LEAVE LEAVE_ACK ABORT "
    "STATUS_QUERY STATUS_REPLY VERDICT_QUERY RESUME RESUME_ACK SUSPECT VIEW_QUERY VIEW_ANSWER VIEW_COMMIT DRAIN_NOTICE "
    "VIEW_KNOWN STREAM STREAM_ANSWER STREAM_OFFER RATE_CHANGES"
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


def write(target, seeds):
    folder = HERE / "corpus" / target
    folder.mkdir(parents=True, exist_ok=True)
    for name, data in seeds.items():
        (folder / f"seed_{name}").write_bytes(bytes(data))


def frame_seeds(frames):
    seeds = {f"{name.lower()}": b"\0" + data for name, data in frames}
    seeds["repaired"] = b"\3" + bytes([0, 0, 0, 0, 1, 33, 1, 0, 2]) + bytes(55) + bytes.fromhex("0100080000000000") + bytes(8)
    return seeds


def handshake_seeds(frames):
    seeds = {}
    bodies = {name: data[64:] for name, data in frames if name in MESSAGES}
    for number, name in enumerate(MESSAGES):
        seeds[name.lower()] = bytes([number + 3]) + bodies.get(name, bytes(20))
    hello, welcome = bodies["HELLO"], bodies["WELCOME"]
    length = lambda body: len(body).to_bytes(4, "little")
    seeds["proofs"] = b"\1" + length(hello) + hello + length(welcome) + welcome + bytes([32]) + bytes(range(32)) + bytes(8)
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
        "altered": [three, 4, act(altered), 2, 5, 5, 0, 0, 0, act(altered, 1), 0, 28, 1, act(everyone)],
        "raw": [two_ranks, 6, act(raw), 70] + [83, 76, 73, 67] + [1] * 66 + [act(everyone)],
        "control": [two_ranks, 6, act(control), 22, 0, act(control, 1), 19, 22] + [0] * 22 + [act(everyone)],
        "leave": [three, 8, act(everyone), act(left), act(left, 1), act(send, 2), act(end), 0],
        "leave_slowly": [one | slow | small_folds | three_slots, 81] + [act(two)] * 7 + [act(left)],
        "leave_in_part": [two_ranks, 8, act(part), 9, 0, act(left), act(send, 0), act(send, 1)],
        "half_close": [two_ranks, 8, act(everyone), act(close), 0, act(send, 1), act(end), 1, act(end)],
        "vanish": [three | slow, 8] + rounds + [act(close, 1), 1, act(everyone), act(end), 1, act(end)],
        "end_unread": [three | slow | three_slots, 7] + rounds + [act(close, 1), 2, act(send), act(time), 3, act(drain, 1)],
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
        "one": [one | small_folds, 14] + rounds + [act(view), act(all_follow)] + rounds,
    }  # fmt: skip


def discovery_seeds():
    hostlist, cluster_spec, tf_config, sagemaker, pods, order = range(6)
    spec = json.dumps({"cluster": {"workerpool0": ["w0:2222"], "workerpool1": ["w1:2222"], "workerpool2": ["r0:2222", "r1:2222"], "workerpool3": {}},
                       "environment": "cloud", "task": {"type": "workerpool2", "index": "1", "trial": "3"}, "job": {"a": [1, 2.5, None, True]}})
    roles = json.dumps({"cluster": {"chief": ["c:1"], "worker": ["w:1"], "ps": ["p:1"]}, "task": {"type": "ps", "index": 0}})
    resources = json.dumps({"current_host": "algo-1", "current_group_name": "gpu", "hosts": ["algo-1", "algo-2"],
                            "instance_groups": [{"instance_group_name": "gpu", "hosts": ["algo-1"]}, {"instance_group_name": "reducer", "hosts": ["algo-2"]}]})
    return {name: bytes([what]) + (data if isinstance(data, bytes) else data.encode()) for name, what, data in (
        ("hostlist", hostlist, "a[1-3,07-09],b,c[0-1]n[2-3]"),
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


def main():
    frames = recorded_frames()
    write("frame_fuzz", frame_seeds(frames))
    write("handshake_fuzz", handshake_seeds(frames))
    write("stream_fuzz", stream_seeds())
    write("lane_fuzz", lane_seeds())
    write("lane_recovery_fuzz", lane_recovery_seeds())
    write("discovery_fuzz", discovery_seeds())
    write("block_fuzz", block_seeds())


if __name__ == "__main__":
    main()
