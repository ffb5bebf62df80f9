"""Tests bench/test_network: manage.py keeps a network between commands and changes only namespaces that it created.

Exit code 77 where this process cannot create network namespaces."""

import json
import os
import subprocess
import sys
import unittest
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT / "bench/test_network"), str(ROOT / "tests/capabilities")]

from capabilities import enter_namespaces, require  # noqa: E402
from test_network import ALLOWED, TestNetwork, run_command  # noqa: E402

NAME = f"t{os.getpid()}"
DEADLINE_S = 60

SEND = """import socket, sys
s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
for _ in range(int(sys.argv[2])): s.sendto(bytes(1000), (sys.argv[1], 9))
"""


def manage(*arguments, expect=0):
    done = subprocess.run([sys.executable, "-B", ROOT / "bench/test_network/manage.py", arguments[0], "--name", NAME, *map(str, arguments[1:])],
                          capture_output=True, text=True, timeout=DEADLINE_S, check=False)
    assert done.returncode == expect, f"{arguments}: {done.returncode}\n{done.stdout}{done.stderr}"
    return done.stdout + done.stderr


def namespaces(prefix):
    return sorted(path.name for path in Path("/run/netns").iterdir() if path.name.startswith(prefix)) if Path("/run/netns").exists() else []


class ManageTest(unittest.TestCase):
    def setUp(self):
        self.addCleanup(self.clean)

    def clean(self):
        state = Path(f"/run/sluice-test-network/{NAME}.json")
        if state.exists():
            manage("down")
        for name in namespaces(f"sluice-{NAME}-"):
            run_command("ip", "netns", "del", name)

    def stat(self):
        rows = [line.split() for line in manage("stat").splitlines()[1:]]
        return {(row[0], row[1]): {"rate": row[2], "sent": int(row[3]), "drops": int(row[4]), "overlimits": int(row[5])} for row in rows}

    def test_up_exec_stat_rate_down(self):
        output = manage("up", "--workers", 2, "--reducers", 2, "--rate", "100mbit", "--host-rate", "w1=50mbit", "--mtu", 1400)
        addresses = {line.split()[0]: line.split()[1] for line in output.splitlines()[1:]}
        self.assertEqual(list(addresses), ["w0", "w1", "r0", "r1", "ctl"])
        self.assertIn("is already up", manage("up", expect=1))
        self.assertEqual(manage("exec", "w0", "sysctl", "-n", "net.ipv4.tcp_congestion_control"), "cubic\n")
        manage("exec", "w0", "sh", "-c", "exit 7", expect=7)
        self.assertIn("the hosts are: w0 w1", manage("exec", "w7", "true", expect=1))
        self.assertEqual(json.loads(manage("exec", "r1", "ip", "-j", "link", "show", "dev", "eth0"))[0]["mtu"], 1400)

        # The data exceeds the burst of the limiters, so both ends have to delay a part of it.
        manage("exec", "w1", sys.executable, "-c", SEND, addresses["w0"], 500)
        after = self.stat()
        for end in (("w1", "host"), ("w0", "switch")):
            self.assertGreater(after[end]["sent"], 400_000, end)
            self.assertLess(after[end]["sent"], 600_000, end)
        self.assertGreater(after["w1", "host"]["overlimits"], 0)
        self.assertLess(after["r0", "switch"]["sent"], 50_000)
        self.assertEqual({key: row["rate"] for key, row in after.items() if key[1] == "host"},
                         {("w0", "host"): "100mbit", ("w1", "host"): "50mbit", ("r0", "host"): "100mbit", ("r1", "host"): "100mbit", ("ctl", "host"): "0"})

        manage("rate", "--reducer-rate", "20mbit", "--host-rate", "w0=0")
        rates = {key: row["rate"] for key, row in self.stat().items()}
        self.assertEqual([rates[host, "switch"] for host in addresses], ["0", "50mbit", "20mbit", "20mbit", "0"])
        self.assertIn("rate 20Mbit", manage("exec", "r0", "tc", "qdisc", "show", "dev", "eth0"))
        self.assertNotIn("tbf", manage("exec", "w0", "tc", "qdisc", "show", "dev", "eth0"))

        manage("down")
        self.assertEqual(namespaces(f"sluice-{NAME}-"), [])
        self.assertIn("is not up", manage("down", expect=1))

    def test_bad_options_are_reported(self):
        self.assertIn("fast", manage("up", "--rate", "fast", expect=2))
        self.assertIn("HOST=RATE", manage("up", "--host-rate", "w1", expect=2))
        self.assertIn("w9", manage("up", "--host-rate", "w9=1mbit", expect=1))
        self.assertEqual(namespaces(f"sluice-{NAME}-"), [])

    def test_namespace_that_replaced_an_own_one_is_kept(self):
        manage("up", "--workers", 2)
        other = f"sluice-{NAME}-w1"
        run_command("ip", "netns", "del", other)
        run_command("ip", "netns", "add", other)
        for arguments in (("exec", "w0", "true"), ("stat",), ("rate", "--rate", "1mbit")):
            self.assertIn(f"{other} was created by another process", manage(*arguments, expect=1))
        self.assertIn(other, manage("down", expect=1))
        self.assertEqual(namespaces(f"sluice-{NAME}-"), [other])

    def test_namespace_that_existed_before_is_kept(self):
        other = f"sluice-{NAME}-w1"
        run_command("ip", "netns", "add", other)
        self.assertIn(other, manage("up", "--workers", 2, expect=1))
        self.assertEqual(namespaces(f"sluice-{NAME}-"), [other])
        self.assertIn("is not up", manage("down", expect=1))

    def test_unavailable_congestion_control_is_an_error(self):
        with self.assertRaises(SystemExit) as caught, TestNetwork(["a"], "1mbit", congestion_control="nosuch"):
            pass
        self.assertIn("nosuch", str(caught.exception))
        self.assertNotIn("nosuch", ALLOWED.read_text(encoding="ascii"))
        self.assertEqual(namespaces(f"sluice{os.getpid()}-"), [])


if __name__ == "__main__":
    enter_namespaces()
    require("network-namespaces")
    unittest.main(verbosity=2)
