"""All versions of the profiler, with offloaded operations."""

import json
import unittest
from pathlib import Path

from nccl_player import PROFILER_ABIS, PlayerTest, main, newest_abi_only

try:
    from jsonschema import Draft202012Validator
except ImportError:
    Draft202012Validator = None

SCHEMA = Path(__file__).resolve().parents[1] / "functional" / "trace_schema.json"


class Profiler(PlayerTest):
    def test_asks_for_no_event_without_a_trace(self):
        self.start_pool(1)
        self.run_player("profiler", "--ranks", 2, "--expect", "inert")

    def traces(self, *options, nccl=23007):
        """The events of each session's trace, by the name of its communicator (None: without collectives)."""
        self.start_pool(2)
        self.run_player("profiler", "--ranks", 2, "--expect", "events", "--nccl", nccl, *options, env={"SLUICE_TRACE": str(self.folder / "trace.json")})
        traces = {}
        for path in self.folder.glob("trace-*.json"):
            events = json.loads(path.read_text())
            names = {event["args"]["communicator"] for event in events if event["cat"] == "collective"}
            self.assertLessEqual(len(names), 1)
            traces.setdefault(next(iter(names), None), []).append(events)
        self.assertEqual(sum(map(len, traces.values())), 2 * len(PROFILER_ABIS))  # one of each rank and communicator
        return traces

    def test_joins_collectives_with_operations(self):
        traces = self.traces()
        without = traces.pop(None)
        self.assertEqual(sorted(traces), ["profiler v5", "profiler v6", "profiler v7"])
        self.assertEqual({len(sessions) for sessions in traces.values()}, {2})
        for events in without:
            self.assertFalse([event for event in events if "collective" in event.get("args", {})])
        for events in (events for sessions in traces.values() for events in sessions):
            self.check_collectives(events)

    @newest_abi_only
    @unittest.skipIf(Draft202012Validator is None, "needs python3-jsonschema: not installed")
    def test_traces_match_the_schema(self):
        for events in self.traces()["profiler v7"]:
            error = next(Draft202012Validator(json.loads(SCHEMA.read_text())).iter_errors(events), None)
            self.assertIsNone(error, error and f"{error.json_path}: {error.message[:2000]}")

    def check_collectives(self, events):
        collectives = {event["args"]["collective"]: event for event in events if event["cat"] == "collective"}
        self.assertEqual(sorted(collectives), [1, 2, 3])
        for number, event in collectives.items():
            self.assertEqual(event["name"], "AllReduce")
            found = {key: event["args"][key] for key in ("sequence", "nodes", "ranks", "dtype", "count", "algorithm", "protocol", "channels")}
            self.assertEqual(found, {"sequence": number - 1, "nodes": 2, "ranks": 2, "dtype": "ncclFloat32", "count": 75_000,
                                     "algorithm": "COLLNET_CHAIN", "protocol": "SIMPLE", "channels": 2})
            self.assertTrue(0 < event["args"]["launch_to_network_us"] <= event["args"]["launch_to_kernel_us"], event)
            self.assertTrue(0 < event["args"]["gpu_us"] <= event["dur"] + 1000, event)
        operations = [event for event in events if event["cat"] == "operation"]
        for number, event in collectives.items():
            own = [each for each in operations if each["args"].get("collective") == number]
            self.assertTrue(own, event)
            for each in own:
                self.assertGreaterEqual(each["ts"] + 0.01, event["ts"])
                self.assertLessEqual(each["ts"] + each["dur"], event["ts"] + event["dur"] + 0.01)
        # Those before the first collective belong to none.
        outside = [event for event in operations if "collective" not in event["args"]]
        self.assertTrue(outside and all(event["ts"] < collectives[1]["ts"] for event in outside), outside)

    @newest_abi_only
    def test_joins_nothing_without_the_id_of_the_communicator(self):
        self.assertEqual(list(self.traces("--abi", 10)), [None])

    @newest_abi_only
    def test_joins_nothing_where_a_context_makes_nccl_crash(self):
        self.assertEqual(list(self.traces("--abi", 11, nccl=22803)), [None])


if __name__ == "__main__":
    main(proves="profiler", subjects=[f"v{abi}" for abi in PROFILER_ABIS])
