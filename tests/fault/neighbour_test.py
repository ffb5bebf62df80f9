"""A short run of bench/chaos/neighbour.py: a checked job and a training beside clients that break the protocol in every state."""

import json
import os
import subprocess
import sys
from pathlib import Path

import sluice_process
from sluice_process import SluiceTest, environment, main

NEIGHBOUR = Path(__file__).resolve().parents[2] / "bench" / "chaos" / "neighbour.py"
BRIEF = os.environ.get("SLUICE_TEST_BRIEF") == "1"  # sanitizers keep freed memory
DURATION_S = float(os.environ.get("SLUICE_TEST_NEIGHBOUR_S", "4"))


class NeighbourTest(SluiceTest):
    def run_neighbour(self, *arguments):
        path = self.folder / "result.json"
        done = subprocess.run([sys.executable, "-B", NEIGHBOUR, "--sluice", sluice_process.PROGRAM, "--json", path, "--duration-s", str(DURATION_S),
                               "--workers", "2", *(["--max-growth", "8192"] if BRIEF else []), *map(str, arguments)],
                              capture_output=True, text=True, timeout=120 + 2 * DURATION_S, env=environment(), check=False)
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
        result = json.loads(path.read_text())
        self.assertEqual((result["nwrong"], result["error"]), (0, None))
        return result

    def test_no_act_of_a_neighbour_or_a_stranger_ends_a_job(self):
        result = self.run_neighbour("--seed", 3, "--attackers", 1)
        acts = {key.split(",")[0] for key in result["counts"]}
        self.assertGreater(result["acts"], 50)
        self.assertGreater(len(acts), 15, acts)

    def test_strangers_alone(self):
        result = self.run_neighbour("--seed", 4, "--of", "strangers")
        self.assertTrue(any(key.startswith("has_no_token, ") for key in result["counts"]), result["counts"])
        self.assertFalse(any(key.startswith("has_no_token, done") for key in result["counts"]), result["counts"])


if __name__ == "__main__":
    main()
